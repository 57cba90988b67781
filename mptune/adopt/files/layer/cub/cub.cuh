#pragma once
#include <chrono>  // cub's own has it, and programs count on that
#include "mptune_layer/cub_device.hpp"
