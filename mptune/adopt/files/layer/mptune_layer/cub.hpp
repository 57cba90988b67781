// The parts of cub that kernels call. Programs and templates share the text.
#pragma once
#include "library.hpp"
#include MPTUNE_CUB
