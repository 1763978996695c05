/* Builds an image, changes it in a batch, reads it back.
 *
 *     cc image.c $(pkg-config --cflags --libs quire) -o image && ./image /tmp/new.img
 */
#include <errno.h>
#include <quire.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int64_t result, const char *what)
{
	if (result >= 0)
		return;
	const struct quire_error *e = quire_last_error();
	fprintf(stderr, "%s: %s (errno %d)\n", what, e->message, e->errnum);
	exit(1);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s IMAGE\n", argv[0]);
		return 2;
	}
	struct quire_create_how how;
	memset(&how, 0, sizeof(how));
	how.size = 16 << 20;
	how.label = "example";
	struct quire_fs *fs;
	check(quire_create(argv[1], &how, sizeof(how), &fs), "create");

	/* Both files, or none, whatever happens to the process. */
	struct quire_batch *batch;
	struct quire_file *file;
	check(quire_mkdir(fs, "/etc", 0755), "mkdir");
	check(quire_batch_begin(fs, &batch), "begin");
	check(quire_file_open(fs, "/etc/hostname", QUIRE_CREATE | QUIRE_TRUNCATE, 0644, &file), "open");
	check(quire_write(file, "sandbox\n", 8), "write");
	check(quire_file_close(file), "close");
	check(quire_symlink(fs, "hostname", "/etc/name"), "symlink");
	check(quire_batch_commit(batch), "commit");

	char text[64];
	check(quire_file_open(fs, "/etc/name", 0, 0, &file), "open");
	int64_t n = quire_read(file, text, sizeof(text));
	check(n, "read");
	check(quire_file_close(file), "close");
	printf("%.*s", (int)n, text);

	/* What fails is told with its path. */
	struct quire_stat st;
	if (quire_stat(fs, "/missing", &st) != -ENOENT || quire_last_error()->kind != QUIRE_ERROR_KIND_NOT_FOUND)
		return 1;
	printf("%s\n", quire_last_error()->message);

	struct quire_dir *dir;
	struct quire_dirent entry;
	int more;
	check(quire_opendir(fs, "/etc", &dir), "opendir");
	while ((more = quire_readdir(dir, &entry)) == 1)
		printf("%s %o %llu\n", entry.name, entry.stat.mode, (unsigned long long)entry.stat.size);
	check(more, "readdir");
	check(quire_closedir(dir), "closedir");
	check(quire_close(fs), "close");
	return 0;
}
