// Trains a small GPT-2 on the characters of tiny Shakespeare, then writes in its manner. The program stands in gpt.h, for gpt_ddp too.
#include "gpt.h"

int main(int argc, char** argv) { return samples::gpt_main(argc, argv, false); }
