// The parts of cub that kernels call. Programs and templates share the text.
#pragma once
#include "../mptune_layer/library.hpp"
#include MPTUNE_CUB
