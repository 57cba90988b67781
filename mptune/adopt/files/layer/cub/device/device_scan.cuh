#pragma once
#include "mptune_layer/cub_device.hpp"
