#ifndef CHECK_H
#define CHECK_H
/**
 * @file
 * Checks for C tests: a check that fails is printed on standard output and counted, and the test
 * goes on. Standard error is what is tested; `captured_stderr` reads it.
 */

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failed_checks = 0;

#define CHECK(condition)                                               \
  do {                                                                 \
    if (!(condition)) {                                                \
      printf("%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      failed_checks++;                                                 \
    }                                                                  \
  } while (0)

/** Standard error, turned into a file without a name. */
static FILE* captured_file = NULL;

/** Turns standard error into a file, also for processes forked later. */
static inline void capture_stderr(void) {
  captured_file = tmpfile();
  if (captured_file == NULL || freopen("/dev/null", "a", stderr) == NULL ||
      dup2(fileno(captured_file), STDERR_FILENO) < 0) {
    printf("standard error cannot be captured\n");
    exit(77);
  }
  setvbuf(stderr, NULL, _IONBF, 0);
}

/** Returns what has been written to standard error since the last call; static storage. */
static inline char const* captured_stderr(void) {
  static char text[16384];
  off_t const end = lseek(STDERR_FILENO, 0, SEEK_CUR);
  ssize_t got = pread(STDERR_FILENO, text, sizeof text - 1, 0);
  if (got < 0 || got > end) got = 0;
  text[got] = '\0';
  if (ftruncate(STDERR_FILENO, 0) != 0 || lseek(STDERR_FILENO, 0, SEEK_SET) != 0) abort();
  return text;
}

static inline int count_lines(char const* text) {
  int lines = 0;
  for (; *text != '\0'; text++) lines += *text == '\n';
  return lines;
}

/** How much shared memory, in mappings, and how many open files this process has. */
struct holdings {
  int shared_mappings;
  int descriptors;
};

static inline struct holdings count_holdings(void) {
  struct holdings found = {0, 0};
  char line[1024];
  FILE* const maps = fopen("/proc/self/maps", "r");
  DIR* const open_files = opendir("/proc/self/fd");
  if (maps == NULL || open_files == NULL) abort();
  while (fgets(line, sizeof line, maps) != NULL) {
    char access[8] = "";
    if (sscanf(line, "%*s %7s", access) == 1 && access[3] == 's') found.shared_mappings++;
  }
  while (readdir(open_files) != NULL) found.descriptors++;
  fclose(maps);
  closedir(open_files);
  return found;
}

static inline int same_holdings(struct holdings a, struct holdings b) {
  return a.shared_mappings == b.shared_mappings && a.descriptors == b.descriptors;
}

#endif
