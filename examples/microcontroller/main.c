/* Runs the network on some images: prints the class of each, all outputs, and what it took. No standard library. */
#include "board.h"
#include "images.h"

/* NETWORK is the name of the network's C file, given by the compiler's command line. */
#define JOINED_(a, b) a##b
#define JOINED(a, b) JOINED_(a, b)
#define TEXT_(a) #a
#define TEXT(a) TEXT_(a)
#include TEXT(NETWORK.h)

static void print_unsigned(unsigned number)
{
    char digits[11];
    int at = 10;
    digits[10] = '\0';
    do digits[--at] = (char)('0' + number % 10); while (number /= 10);
    board_print(digits + at);
}

/* the bits of a float, so that not a digit is lost on the way */
static void print_bits(float number)
{
    union { float number; unsigned bits; } both;
    char digits[10];
    both.number = number;
    digits[0] = ' ';
    for (int i = 0; i < 8; i++) digits[8 - i] = "0123456789abcdef"[both.bits >> 4 * i & 15];
    digits[9] = '\0';
    board_print(digits);
}

static void print_line(const char *name, unsigned number, const char *unit)
{
    board_print(name);
    print_unsigned(number);
    board_print(unit);
    board_print("\n");
}

int main(void)
{
    static float output[OUTPUTS];
    if (JOINED(NETWORK, _selftest)()) {
        board_print("self-test failed\n");
        return 1;
    }
    board_print("self-test passed\n");
    unsigned instructions = 0;
    for (int image = 0; image < IMAGES; image++) {
        const unsigned started = board_instructions();
        if (JOINED(NETWORK, _run)(images[image], output)) return 1;
        instructions = board_instructions() - started;
        int best = 0;
        for (int i = 1; i < OUTPUTS; i++) best = output[i] > output[best] ? i : best;
        board_print("class ");
        print_unsigned((unsigned)best);
        board_print(", outputs");
        for (int i = 0; i < OUTPUTS; i++) print_bits(output[i]);
        board_print("\n");
    }
    if (instructions) print_line("an image takes ", instructions, " instructions");
    if (board_flash()) print_line("flash: ", board_flash(), " bytes");
    if (board_ram()) print_line("RAM: ", board_ram(), " bytes");
    return 0;
}
