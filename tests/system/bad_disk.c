/* A disk that fails on demand: preloaded into the service, it makes the n-th call that writes to one store fail.
 *
 * BAD_DISK names a file of five 64-bit numbers, mapped by this library and by the test: the number of calls until
 * the fault (0: no fault), which calls count (1 writes, 2 syncs, 4 truncations), what happens (errno, or 0 for
 * a short write that is no error), whether half of the bytes are written first, and how many faults there were.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

enum { LEFT, KINDS, ERROR, HALF, FAULTS, SIZE };
enum { WRITES = 1, SYNCS = 2, TRUNCATIONS = 4 };

static long *wish;

__attribute__((constructor)) static void begin(void) {
    const char *name = getenv("BAD_DISK");
    int fd = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *page = mmap(NULL, SIZE * sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (page != MAP_FAILED) wish = page;
}

static int is_of_the_store(int fd) {
    char link[40], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, "/erelong.db") != NULL;
}

static int is_its_turn(int fd, long kind) {
    if (!wish || !(wish[KINDS] & kind) || !wish[LEFT] || !is_of_the_store(fd)) return 0;
    if (__atomic_sub_fetch(&wish[LEFT], 1, __ATOMIC_SEQ_CST) != 0) return 0;
    __atomic_add_fetch(&wish[FAULTS], 1, __ATOMIC_SEQ_CST);
    return 1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* A failed write puts half of its bytes or none on the disk, and returns an error or a short count. */
#define SPOILED_WRITE(half)                      \
    ssize_t written = wish[HALF] ? (half) : 0;   \
    if (!wish[ERROR]) return written;            \
    errno = (int)wish[ERROR];                    \
    return -1;

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset) {
    if (!is_its_turn(fd, WRITES)) return REAL(pwrite64)(fd, bytes, size, offset);
    SPOILED_WRITE(REAL(pwrite64)(fd, bytes, size / 2, offset))
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t offset) {
    if (!is_its_turn(fd, WRITES)) return REAL(pwrite)(fd, bytes, size, offset);
    SPOILED_WRITE(REAL(pwrite)(fd, bytes, size / 2, offset))
}

ssize_t write(int fd, const void *bytes, size_t size) {
    if (!is_its_turn(fd, WRITES)) return REAL(write)(fd, bytes, size);
    SPOILED_WRITE(REAL(write)(fd, bytes, size / 2))
}

int fsync(int fd) {
    if (!is_its_turn(fd, SYNCS)) return REAL(fsync)(fd);
    errno = (int)wish[ERROR];
    return -1;
}

int fdatasync(int fd) {
    if (!is_its_turn(fd, SYNCS)) return REAL(fdatasync)(fd);
    errno = (int)wish[ERROR];
    return -1;
}

int ftruncate64(int fd, off64_t size) {
    if (!is_its_turn(fd, TRUNCATIONS)) return REAL(ftruncate64)(fd, size);
    errno = (int)wish[ERROR];
    return -1;
}

int ftruncate(int fd, off_t size) {
    if (!is_its_turn(fd, TRUNCATIONS)) return REAL(ftruncate)(fd, size);
    errno = (int)wish[ERROR];
    return -1;
}
