// Programs may include it without a use; kernels that use it are refused.
#pragma once
