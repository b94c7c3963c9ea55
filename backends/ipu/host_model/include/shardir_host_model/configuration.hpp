// Configuration. By default everything is inline and a program needs only these headers.
// With SHARDIR_HOST_MODEL_SEPARATE the headers only declare, and one object, compiled once from
// <shardir_host_model/implementation.hpp>, is linked to every program: they compile much faster.
#pragma once

#if defined(SHARDIR_HOST_MODEL_SEPARATE)
#define SHARDIR_HOST_MODEL_FUNCTION
#else
#define SHARDIR_HOST_MODEL_FUNCTION inline
#endif
