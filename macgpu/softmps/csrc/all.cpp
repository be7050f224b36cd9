// The whole device in one go: reading torch's headers takes longer than compiling what is here, and
// this way they are read once.
#include "alias.cpp"
#include "device.cpp"
#include "device_check.cpp"
#include "dispatch.cpp"
#include "generator.cpp"
#include "kernels.cpp"
#include "memory.cpp"
