/* Stands between a program and the file system: counts what it does to files below SHIM_ROOT and, at operation
 * SHIM_AT, kills the process before, in the middle of or after it, or makes it fail; writes all of it to SHIM_LOG.
 *
 *   SHIM_ROOT      only paths below this one are touched
 *   SHIM_AT        number of the operation, from 1; 0 or unset: none
 *   SHIM_MODE      before | torn | after | fail
 *   SHIM_TORN      per cent of a write that reaches the file before the kill
 *   SHIM_ERRNO     what a failing operation says
 *   SHIM_STICKY    1: every operation from SHIM_AT on fails
 *   SHIM_KINDS     letters of the operations that count: C create, W write, S sync, T truncate, U unlink, R rename,
 *                  L link, M mkdir, O any open; unset: all but O
 *   SHIM_SYNC_MS   how long a sync takes, at least
 *   SHIM_LOG       record every operation there
 *   SHIM_ACKS      descriptor whose writes are acknowledgements; they are recorded, never counted
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum mode { NONE, BEFORE, TORN, AFTER, FAIL };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX], kinds[32];
static size_t root_length;
static long at, count;
static enum mode mode;
static int torn, failing, sticky, sync_ms, log_fd = -1, acks = -1;

static long number(const char *name) {
    const char *value = getenv(name);
    return value ? atol(value) : 0;
}

static void text(const char *name, char *into, size_t size, const char *otherwise) {
    const char *value = getenv(name);
    snprintf(into, size, "%s", value ? value : otherwise);
}

/* Reads the variables again: a forked child sets its own. */
__attribute__((visibility("default"))) void shim_reset(void) {
    char word[16], path[PATH_MAX];
    text("SHIM_ROOT", root, sizeof root, "");
    root_length = strlen(root);
    at = number("SHIM_AT");
    torn = (int)number("SHIM_TORN");
    failing = (int)number("SHIM_ERRNO");
    sticky = (int)number("SHIM_STICKY");
    sync_ms = (int)number("SHIM_SYNC_MS");
    acks = getenv("SHIM_ACKS") ? (int)number("SHIM_ACKS") : -1;
    text("SHIM_KINDS", kinds, sizeof kinds, "CWSTURLM");
    text("SHIM_MODE", word, sizeof word, "");
    mode = !strcmp(word, "before") ? BEFORE : !strcmp(word, "torn") ? TORN : !strcmp(word, "after") ? AFTER
         : !strcmp(word, "fail") ? FAIL : NONE;
    count = 0;
    if (log_fd >= 0) syscall(SYS_close, log_fd);
    log_fd = -1;
    text("SHIM_LOG", path, sizeof path, "");
    if (path[0]) log_fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

__attribute__((visibility("default"))) long shim_count(void) { return count; }

__attribute__((constructor)) static void start(void) { shim_reset(); }

static void die(void) {
    syscall(SYS_kill, (int)syscall(SYS_getpid), SIGKILL);
    for (;;) pause();
}

static int below(const char *path) {
    return root_length && !strncmp(path, root, root_length) && (path[root_length] == '/' || !path[root_length]);
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    /* A file that was unlinked while open has no name any more, and nothing to say about a crash. */
    return below(path) && !strstr(path, " (deleted)");
}

static int absolute(int directory, const char *path, char *into) {
    char link[64], folder[PATH_MAX] = "";
    if (path[0] != '/') {
        snprintf(link, sizeof link, directory == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", directory);
        ssize_t length = readlink(link, folder, sizeof folder - 2);
        if (length <= 0) return 0;
        strcpy(folder + length, "/");
    }
    return (size_t)snprintf(into, PATH_MAX, "%s%s", folder, path) < PATH_MAX && below(into);
}

struct entry {
    uint32_t kind, first, second, size;
    int64_t offset;
};

static void record(char kind, const char *path, const char *other, int64_t offset, const void *data, size_t size) {
    if (log_fd < 0) return;
    struct entry entry = {(uint32_t)kind, (uint32_t)strlen(path), (uint32_t)strlen(other), (uint32_t)size, offset};
    struct iovec parts[4] = {{&entry, sizeof entry}, {(void *)path, entry.first}, {(void *)other, entry.second}, {(void *)data, size}};
    syscall(SYS_writev, log_fd, parts, 4);
}

/* What is to become of the operation that is about to happen. */
static enum mode next(char kind) {
    if (!strchr(kinds, kind)) return NONE;
    count++;
    if (!at || count < at || (count > at && !(mode == FAIL && sticky))) return NONE;
    if (mode == BEFORE) die();
    return mode;
}

/* One operation: `body` does it and leaves the answer in `answer`; it is recorded only when it was done. */
#define OPERATION(KIND, PATH, OTHER, OFFSET, DATA, SIZE, body) \
    int saved; \
    pthread_mutex_lock(&lock); \
    enum mode what = next(KIND); \
    if (what == FAIL) { pthread_mutex_unlock(&lock); errno = failing; return -1; } \
    body; \
    saved = errno; \
    if (answer >= 0) record(KIND, PATH, OTHER, OFFSET, DATA, SIZE); \
    if (what == AFTER || what == TORN) die(); \
    pthread_mutex_unlock(&lock); \
    errno = saved; \
    return answer;

static size_t share(enum mode what, size_t size) {
    return what == TORN ? size * (size_t)torn / 100 : size;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    char path[PATH_MAX];
    ssize_t answer;
    if (!path_of(fd, path)) return syscall(SYS_pwrite64, fd, data, size, offset);
    OPERATION('W', path, "", offset, data, (size_t)answer,
              answer = syscall(SYS_pwrite64, fd, data, share(what, size), offset))
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return pwrite64(fd, data, size, offset); }

ssize_t write(int fd, const void *data, size_t size) {
    char path[PATH_MAX];
    ssize_t answer;
    if (fd == acks) {
        pthread_mutex_lock(&lock);
        record('A', "", "", 0, data, size);
        answer = syscall(SYS_write, fd, data, size);
        pthread_mutex_unlock(&lock);
        return answer;
    }
    if (!path_of(fd, path)) return syscall(SYS_write, fd, data, size);
    struct stat about;
    int64_t offset = fcntl(fd, F_GETFL) & O_APPEND ? (fstat(fd, &about), about.st_size) : lseek(fd, 0, SEEK_CUR);
    OPERATION('W', path, "", offset, data, (size_t)answer, answer = syscall(SYS_write, fd, data, share(what, size)))
}

static int synced(int fd, int how) {
    char path[PATH_MAX];
    int answer;
    if (!path_of(fd, path)) return (int)syscall(how, fd);
    /* Not under the lock: what others do and tell meanwhile is what a slow disk is about. */
    if (sync_ms) usleep((useconds_t)sync_ms * 1000);
    OPERATION('S', path, "", 0, "", 0, answer = (int)syscall(how, fd))
}

int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

int ftruncate64(int fd, off64_t size) {
    char path[PATH_MAX];
    int answer;
    if (!path_of(fd, path)) return (int)syscall(SYS_ftruncate, fd, size);
    OPERATION('T', path, "", size, "", 0, answer = (int)syscall(SYS_ftruncate, fd, size))
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int unlinkat(int directory, const char *name, int flags) {
    char path[PATH_MAX];
    int answer;
    if (!absolute(directory, name, path)) return (int)syscall(SYS_unlinkat, directory, name, flags);
    OPERATION('U', path, "", 0, "", 0, answer = (int)syscall(SYS_unlinkat, directory, name, flags))
}

int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int renameat(int from_directory, const char *from, int to_directory, const char *to) {
    char path[PATH_MAX], other[PATH_MAX];
    int answer, first = absolute(from_directory, from, path), second = absolute(to_directory, to, other);
    if (!first && !second) return (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, 0);
    OPERATION('R', path, other, 0, "", 0, answer = (int)syscall(SYS_renameat2, from_directory, from, to_directory, to, 0))
}

int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
    char path[PATH_MAX], other[PATH_MAX];
    int answer, first = absolute(from_directory, from, path), second = absolute(to_directory, to, other);
    if (!first && !second) return (int)syscall(SYS_linkat, from_directory, from, to_directory, to, flags);
    OPERATION('L', path, other, 0, "", 0, answer = (int)syscall(SYS_linkat, from_directory, from, to_directory, to, flags))
}

int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int mkdirat(int directory, const char *name, mode_t rights) {
    char path[PATH_MAX];
    int answer;
    if (!absolute(directory, name, path)) return (int)syscall(SYS_mkdirat, directory, name, rights);
    OPERATION('M', path, "", 0, "", 0, answer = (int)syscall(SYS_mkdirat, directory, name, rights))
}

int mkdir(const char *name, mode_t rights) { return mkdirat(AT_FDCWD, name, rights); }

static int opened(int directory, const char *name, int flags, mode_t rights) {
    char path[PATH_MAX];
    int answer;
    if (!absolute(directory, name, path)) return (int)syscall(SYS_openat, directory, name, flags, rights);
    struct stat about;
    int exists = !fstatat(directory, name, &about, 0);
    if (strchr(kinds, 'O')) {
        OPERATION('O', path, "", 0, "", 0, answer = (int)syscall(SYS_openat, directory, name, flags, rights))
    }
    if (!exists && flags & O_CREAT) {
        OPERATION('C', path, "", 0, "", 0, answer = (int)syscall(SYS_openat, directory, name, flags, rights))
    }
    if (exists && flags & O_TRUNC) {
        OPERATION('T', path, "", 0, "", 0, answer = (int)syscall(SYS_openat, directory, name, flags, rights))
    }
    return (int)syscall(SYS_openat, directory, name, flags, rights);
}

#define RIGHTS(flags, last) \
    mode_t rights = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, last); rights = va_arg(more, mode_t); va_end(more); }

int open(const char *name, int flags, ...) { RIGHTS(flags, flags) return opened(AT_FDCWD, name, flags, rights); }
int open64(const char *name, int flags, ...) { RIGHTS(flags, flags) return opened(AT_FDCWD, name, flags, rights); }
int openat(int directory, const char *name, int flags, ...) { RIGHTS(flags, flags) return opened(directory, name, flags, rights); }
int openat64(int directory, const char *name, int flags, ...) { RIGHTS(flags, flags) return opened(directory, name, flags, rights); }
