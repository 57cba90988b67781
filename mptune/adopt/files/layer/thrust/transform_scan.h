#pragma once
#include "mptune_layer/thrust.hpp"
