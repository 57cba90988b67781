// Loaded into g++'s compiler proper by LD_PRELOAD. When the compiler opens MPTUNE_SOURCE, it has started, set up its
// tables and read the prelude. There it stays, and forks for each source: the copy compiles that source instead.
//
// A request is one message on descriptor 0: a folder to work in, then the words of a command, each ended by a null
// character. The command runs; without one, source.cpp is compiled to kernel.s. Output goes to the file "log". The answer
// is the status that waitpid() gives. One byte is sent before the first request.

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int open_function(const char *, int, ...);

static open_function *next(const char *name) {
    return (open_function *)dlsym(RTLD_NEXT, name);
}

// Programs that this process starts do not load the library.
__attribute__((constructor)) static void begin(void) {
    unsetenv("LD_PRELOAD");
}

static void redirect(int to, const char *path, int flags) {
    int file = next("open")(path, flags | O_CLOEXEC, 0600);
    if (file < 0 || dup2(file, to) < 0) _exit(127);
}

// Returns in a copy of this process, once for each source; this process serves until its owner hangs up.
static int serve(void) {
    static char request[1 << 16], *words[1 << 12];
    // The compiler's tables of the processor, which it otherwise makes when it reaches the first function: once for all
    // copies. Its plug-ins can call this, so that the name is there.
    void (*initialize_rtl)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "_Z14initialize_rtlv");
    if (initialize_rtl) initialize_rtl();
    if (send(0, "", 1, MSG_NOSIGNAL) != 1) _exit(0);
    for (;;) {
        ssize_t size = recv(0, request, sizeof request, 0);
        if (size < 0 && errno == EINTR) continue;
        if (size < 2 || request[size - 1] != 0) _exit(0);
        int count = 0;
        char *at = request + strlen(request) + 1;
        for (; at < request + size && count < (1 << 12) - 1; at += strlen(at) + 1) words[count++] = at;
        words[count] = 0;
        int status = chdir(request);
        if (status == 0) {
            pid_t copy = count == 0 ? fork() : vfork();
            if (copy == 0) {
                redirect(0, "/dev/null", O_RDONLY);
                redirect(2, "log", O_WRONLY | O_CREAT | O_APPEND);
                if (count == 0) {
                    redirect(1, "kernel.s", O_WRONLY | O_CREAT | O_TRUNC);
                    return next("open")("source.cpp", O_RDONLY);
                }
                dup2(2, 1);
                execvp(words[0], words);
                _exit(127);
            }
            while (waitpid(copy, &status, 0) < 0)
                if (errno != EINTR) _exit(0);
        }
        if (send(0, &status, sizeof status, MSG_NOSIGNAL) != sizeof status) _exit(0);
    }
}

#define SERVED(name)                                          \
    int name(const char *path, int flags, ...) {              \
        va_list more;                                         \
        va_start(more, flags);                                \
        int mode = va_arg(more, int);                         \
        va_end(more);                                         \
        if (strcmp(path, MPTUNE_SOURCE) == 0) return serve(); \
        return next(#name)(path, flags, mode);                \
    }

SERVED(open)
SERVED(open64)
