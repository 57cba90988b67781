// The parts of cub that kernels call. Programs and templates share the text.
#pragma once
#include <chrono>  // cub's own has it, and programs count on that
#include "../mptune_layer/library.hpp"
#include MPTUNE_CUB
