// Loaded into g++'s compiler proper by LD_PRELOAD. Where the compiler opens the source it was told to include, everything
// before that is done: it has started, set up its tables and read the prelude. There it stays and forks for each source
// it is given; the copy goes on as if it had opened that one.
//
// A request is one message on descriptor 0: 'c' (compile) or 'r' (only run), the folder to work in, then commands, all
// ended by null characters, each command by one more. 'c' makes kernel.s of source.cpp; the commands run after it. The
// answer is the status of what failed first, 0 if nothing did, as wait() gives it. What all of them print goes to "log".

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

// What this process starts is not to be served.
__attribute__((constructor)) static void begin(void) {
    unsetenv("LD_PRELOAD");
}

static void redirect(int to, const char *path, int flags) {
    int file = next("open")(path, flags | O_CLOEXEC, 0600);
    if (file < 0 || dup2(file, to) < 0) _exit(127);
}

static int wait_for(pid_t process) {
    int status = 0;
    if (process < 0) return -1;
    while (waitpid(process, &status, 0) < 0)
        if (errno != EINTR) return -1;
    return status;
}

static int run(char **command) {
    pid_t process = vfork();
    if (process == 0) {
        redirect(0, "/dev/null", O_RDONLY);
        redirect(1, "log", O_WRONLY | O_CREAT | O_APPEND);
        dup2(1, 2);
        execvp(command[0], command);
        _exit(127);
    }
    return wait_for(process);
}

// Gives the source to a copy of this process, and never comes back in this one.
static int serve(void) {
    static char request[1 << 16], *command[1 << 12];
    if (send(0, "", 1, MSG_NOSIGNAL) != 1) _exit(0);
    for (;;) {
        ssize_t size = recv(0, request, sizeof request, 0);
        if (size < 0 && errno == EINTR) continue;
        if (size < 3 || request[size - 1] != 0) _exit(0);
        char *at = request + 1, *end = request + size;
        int status = chdir(at);
        at += strlen(at) + 1;
        if (status == 0 && request[0] == 'c') {
            pid_t copy = fork();
            if (copy == 0) {
                redirect(0, "/dev/null", O_RDONLY);
                redirect(1, "kernel.s", O_WRONLY | O_CREAT | O_TRUNC);
                redirect(2, "log", O_WRONLY | O_CREAT | O_APPEND);
                return next("open")("source.cpp", O_RDONLY);
            }
            status = wait_for(copy);
        }
        while (status == 0 && at < end) {
            int words = 0;
            for (; at < end && *at != 0 && words < (1 << 12) - 1; at += strlen(at) + 1) command[words++] = at;
            command[words] = 0;
            ++at;
            status = words > 0 ? run(command) : -1;
        }
        if (send(0, &status, sizeof status, MSG_NOSIGNAL) != sizeof status) _exit(0);
    }
}

#define SERVED(name)                                            \
    int name(const char *path, int flags, ...) {                \
        va_list more;                                           \
        va_start(more, flags);                                  \
        int mode = va_arg(more, int);                           \
        va_end(more);                                           \
        if (strcmp(path, MPTUNE_SOURCE) == 0) return serve();   \
        return next(#name)(path, flags, mode);                  \
    }

SERVED(open)
SERVED(open64)
