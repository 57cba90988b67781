// Programs and templates share the text.
#pragma once
#include "mptune_layer/library.hpp"
#include MPTUNE_COOPERATIVE_GROUPS
