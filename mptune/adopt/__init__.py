"""A CUDA, HIP or C++ program as it stands becomes a kernel or an application that mptune can tune."""
