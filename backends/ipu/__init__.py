"""The target "ipu": one C++ program against Poplar, poplibs and GCL, a replica on each device."""

from shardir.backends.ipu.target import TARGET as TARGET
