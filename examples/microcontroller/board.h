/* What the program needs of the machine it runs on. */
#ifndef BOARD_H
#define BOARD_H

/* Prints a text. */
void board_print(const char *text);

/* A clock, in instructions as far as the machine counts them; 0 if it does not. */
unsigned board_instructions(void);

/* Bytes of memory that the program takes; 0 where an operating system manages it. */
unsigned board_flash(void);
unsigned board_ram(void);

#endif
