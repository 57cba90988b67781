#pragma once
#include "mptune_layer/cub.hpp"
