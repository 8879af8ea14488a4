// The same in several processes: tapir-run --nproc 2 gpt_ddp. Every rank trains on windows of its own, and takes the mean of all gradients.
#include "gpt.h"

int main(int argc, char** argv) { return samples::gpt_main(argc, argv, true); }
