/*
 * Preloaded into a program: its constructors run, and so does what they register with the HIP runtime, but in
 * place of its `main` one that returns at once. (glibc 2.34 and later run the program's constructors in there.)
 */
#define _GNU_SOURCE
#include <dlfcn.h>

typedef int main_function(int, char **, char **);
typedef int start_function(main_function *, int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

static int no_main(int argc, char **argv, char **envp) {
  (void)argc, (void)argv, (void)envp;
  return 0;
}

int __libc_start_main(main_function *main, int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end) {
  start_function *real;
  *(void **)&real = dlsym(RTLD_NEXT, "__libc_start_main");
  (void)main;
  return real(no_main, argc, argv, init, fini, rtld_fini, stack_end);
}
