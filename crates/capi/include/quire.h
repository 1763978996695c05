/* libquire: read, build and change ext4 images without mounting them. Made by cbindgen: do not edit.
 *
 * Functions return 0 or a count, or a negative errno; quire_last_error() tells the calling thread more. Paths begin at
 * the root of the image. A handle is not used after it was closed, and a handle of a file or a directory is used by one
 * thread at a time; a struct quire_fs may be used by several. Structures of choices (..._how) are set to zero first,
 * and go with their size, so that a program works with a library that knows more. */

#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 Makes the file if it does not exist.
 */
#define QUIRE_CREATE 1

/*
 Makes the file; it must not exist.
 */
#define QUIRE_EXCLUSIVE 2

/*
 Empties the file.
 */
#define QUIRE_TRUNCATE 4

/*
 quire_write writes at the end of the file.
 */
#define QUIRE_APPEND 8

/*
 What kind of failure an error is.
 */
enum quire_error_kind {
  /*
   No failure.
   */
  QUIRE_ERROR_KIND_NONE = 0,
  QUIRE_ERROR_KIND_NOT_FOUND = 1,
  QUIRE_ERROR_KIND_EXISTS = 2,
  QUIRE_ERROR_KIND_NOT_A_DIRECTORY = 3,
  QUIRE_ERROR_KIND_IS_A_DIRECTORY = 4,
  QUIRE_ERROR_KIND_DIRECTORY_NOT_EMPTY = 5,
  QUIRE_ERROR_KIND_TOO_MANY_SYMLINKS = 6,
  /*
   A name leads out of the directory that was given as root.
   */
  QUIRE_ERROR_KIND_OUTSIDE_ROOT = 7,
  QUIRE_ERROR_KIND_NAME_TOO_LONG = 8,
  QUIRE_ERROR_KIND_TOO_MANY_LINKS = 9,
  QUIRE_ERROR_KIND_FILE_TOO_LARGE = 10,
  QUIRE_ERROR_KIND_INVALID_INPUT = 11,
  /*
   The object is immutable, append-only, or not of a kind that allows this.
   */
  QUIRE_ERROR_KIND_NOT_PERMITTED = 12,
  /*
   The host refuses access.
   */
  QUIRE_ERROR_KIND_PERMISSION_DENIED = 13,
  QUIRE_ERROR_KIND_NO_ATTRIBUTE = 14,
  /*
   The object was freed, or belongs to a batch that was rolled back.
   */
  QUIRE_ERROR_KIND_STALE = 15,
  QUIRE_ERROR_KIND_NO_SPACE = 16,
  QUIRE_ERROR_KIND_READ_ONLY = 17,
  /*
   In use by another process, or frozen.
   */
  QUIRE_ERROR_KIND_BUSY = 18,
  /*
   The changes of a batch do not fit into one transaction; none has happened.
   */
  QUIRE_ERROR_KIND_BATCH_TOO_LARGE = 19,
  QUIRE_ERROR_KIND_UNSUPPORTED = 20,
  /*
   A structure of the image breaks the rules of ext4.
   */
  QUIRE_ERROR_KIND_CORRUPT = 21,
  QUIRE_ERROR_KIND_NOT_EXT4 = 22,
  /*
   A tar stream or another input is malformed.
   */
  QUIRE_ERROR_KIND_BAD_INPUT = 23,
  QUIRE_ERROR_KIND_IO = 24,
  /*
   mke2fs is missing or failed.
   */
  QUIRE_ERROR_KIND_TOOL = 25,
  /*
   A defect of libquire.
   */
  QUIRE_ERROR_KIND_BUG = 26,
};

/*
 Changes that happen together or not at all, also across a crash.
 */
struct quire_batch;

/*
 The entries of a directory as they were when it was opened, in the order of their names.
 */
struct quire_dir;

/*
 An open file. One thread uses it at a time; quire_pread and quire_pwrite may run at once.
 */
struct quire_file;

/*
 An open file system. It may be used by several threads at once.
 */
struct quire_fs;

/*
 The last failure of the calling thread. Its texts are valid until the thread's next call that fails.
 */
struct quire_error {
  enum quire_error_kind kind;
  /*
   A positive errno.
   */
  int errnum;
  /*
   One line, with the path in front.
   */
  const char *message;
  /*
   The path that the failed call was about, or NULL.
   */
  const char *path;
  /*
   The on-disk structure that is damaged, such as "inode", or NULL.
   */
  const char *structure;
  /*
   The block of the image that is damaged, if has_block.
   */
  uint64_t block;
  bool has_block;
};

/*
 How an image is opened. Set it to zero, then what differs.
 */
struct quire_open_how {
  /*
   Where the file system begins in the image, in bytes.
   */
  uint64_t offset;
  /*
   Memory for blocks and file data, in bytes; 0: 64 MiB.
   */
  uint64_t cache_size;
  /*
   The file system lies in this partition, counted from 1; 0: in none.
   */
  uint32_t partition;
  /*
   Owner and group of what is made.
   */
  uint32_t uid;
  uint32_t gid;
  /*
   Not 0: change nothing.
   */
  uint32_t read_only;
};

/*
 How an image is made. Set it to zero, then what differs.
 */
struct quire_create_how {
  /*
   Bytes of the image.
   */
  uint64_t size;
  /*
   At most 16 bytes, or NULL.
   */
  const char *label;
  /*
   16 bytes, or NULL: a random one.
   */
  const uint8_t *uuid;
  /*
   Features as mke2fs -O takes them, with commas, or NULL.
   */
  const char *features;
  /*
   Bytes of a block; 0: mke2fs chooses.
   */
  uint32_t block_size;
  uint32_t reserved0;
  /*
   Inodes; 0: mke2fs chooses.
   */
  uint64_t inodes;
};

/*
 How full a file system is.
 */
struct quire_usage {
  uint64_t blocks;
  uint64_t free_blocks;
  /*
   Without the reserve of root.
   */
  uint64_t available_blocks;
  uint64_t inodes;
  uint64_t free_inodes;
  /*
   Bytes of a block.
   */
  uint32_t block_size;
  uint32_t reserved0;
};

/*
 A time: seconds since 1970 and nanoseconds.
 */
struct quire_time {
  int64_t secs;
  /*
   0 to 999,999,999.
   */
  uint32_t nanos;
  uint32_t reserved0;
};

/*
 What the file system knows of an object.
 */
struct quire_stat {
  /*
   Bytes.
   */
  uint64_t size;
  /*
   Bytes of the image that it takes.
   */
  uint64_t allocated;
  uint32_t ino;
  /*
   Type and permissions, as st_mode.
   */
  uint32_t mode;
  uint32_t uid;
  uint32_t gid;
  uint32_t links;
  /*
   FS_IMMUTABLE_FL and others.
   */
  uint32_t flags;
  uint32_t device_major;
  uint32_t device_minor;
  struct quire_time accessed;
  struct quire_time modified;
  struct quire_time changed;
  /*
   All zero, if the inode does not have it.
   */
  struct quire_time created;
};

/*
 One entry of a directory.
 */
struct quire_dirent {
  /*
   Valid until the next quire_readdir or quire_closedir.
   */
  const char *name;
  /*
   Of the object itself, also of a symbolic link.
   */
  struct quire_stat stat;
};

/*
 What an import changes on the way. Set it to zero, then what differs.
 */
struct quire_import_how {
  /*
   Not 0: all objects get uid and gid instead of their own.
   */
  uint32_t set_owner;
  uint32_t uid;
  uint32_t gid;
  /*
   Permission bits that no object keeps.
   */
  uint32_t remove_permissions;
  /*
   Not 0: names that begin with ".wh." in a tar hide what is in the image.
   */
  uint32_t whiteouts;
  uint32_t reserved0;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 What went wrong in the calling thread's last call that failed. NULL: none has failed.
 */
const struct quire_error *quire_last_error(void);

/*
 The version of the library, such as "0.1.0".
 */
const char *quire_version(void);

/*
 Opens an image file or a block device, and recovers it if a crash has left it dirty. how may be NULL; size is
 sizeof(struct quire_open_how). 0, or a negative errno.

 # Safety
 image is a text, how null or size bytes, fs a place for a pointer.
 */
int quire_open(const char *image, const struct quire_open_how *how, size_t size, struct quire_fs **fs);

/*
 Makes an image by mke2fs and opens it. size is sizeof(struct quire_create_how). 0, or a negative errno.

 # Safety
 image is a text, how points to size bytes, fs is a place for a pointer.
 */
int quire_create(const char *image, const struct quire_create_how *how, size_t size, struct quire_fs **fs);

/*
 Makes everything durable, leaves a clean image, and ends the handle, also when it fails. Files and directories that
 are still open are of no use afterwards, but must be closed. NULL does nothing. 0, or a negative errno.

 # Safety
 fs is null or open, and not used afterwards.
 */
int quire_close(struct quire_fs *fs);

/*
 Makes everything durable. 0, or a negative errno.

 # Safety
 fs is open.
 */
int quire_sync(const struct quire_fs *fs);

/*
 Makes the image clean and keeps it so until quire_thaw: it may be copied meanwhile. 0, or a negative errno.

 # Safety
 fs is open.
 */
int quire_freeze(const struct quire_fs *fs);

/*
 Ends a freeze. 0, or a negative errno.

 # Safety
 fs is open.
 */
int quire_thaw(const struct quire_fs *fs);

/*
 Tells how full the file system is. 0, or a negative errno.

 # Safety
 fs is open, usage a place for the result.
 */
int quire_statfs(const struct quire_fs *fs, struct quire_usage *usage);

/*
 Begins a batch. Until it ends, what this thread changes belongs to it, and calls of other threads wait. The thread
 that has begun it ends it. 0, or a negative errno.

 # Safety
 fs is open, batch a place for a pointer.
 */
int quire_batch_begin(const struct quire_fs *fs, struct quire_batch **batch);

/*
 Makes all changes of a batch durable at once, and ends the handle, also when it fails: then nothing has changed. 0,
 or a negative errno; -EBUSY with QUIRE_ERROR_KIND_BATCH_TOO_LARGE: they do not fit into one transaction.

 # Safety
 batch was begun by this thread, and is not used afterwards.
 */
int quire_batch_commit(struct quire_batch *batch);

/*
 Undoes all changes of a batch, and ends the handle. Open files and directories are stale (-ESTALE) afterwards. NULL
 does nothing. 0, or a negative errno: the image cannot be opened again.

 # Safety
 As [quire_batch_commit]; null is allowed.
 */
int quire_batch_rollback(struct quire_batch *batch);

/*
 What the file system knows of an object, after symbolic links. 0, or a negative errno.

 # Safety
 fs is open, name a text, stat a place for the result.
 */
int quire_stat(const struct quire_fs *fs, const char *name, struct quire_stat *stat);

/*
 What the file system knows of an object, of a symbolic link itself. 0, or a negative errno.

 # Safety
 As [quire_stat()].
 */
int quire_lstat(const struct quire_fs *fs, const char *name, struct quire_stat *stat);

/*
 Sets permissions, after symbolic links. 0, or a negative errno.

 # Safety
 fs is open, name a text.
 */
int quire_chmod(const struct quire_fs *fs, const char *name, uint32_t mode);

/*
 Sets owner and group; (uint32_t)-1 leaves one as it is. 0, or a negative errno.

 # Safety
 fs is open, name a text.
 */
int quire_chown(const struct quire_fs *fs, const char *name, bool follow, uint32_t uid, uint32_t gid);

/*
 Sets times; a null pointer leaves one as it is. 0, or a negative errno.

 # Safety
 fs is open, name a text, the times null or filled.
 */
int quire_utimens(const struct quire_fs *fs,
                  const char *name,
                  bool follow,
                  const struct quire_time *accessed,
                  const struct quire_time *modified);

/*
 Reads an extended attribute, such as "user.comment". Its size, or a negative errno; with len 0, nothing is copied.

 # Safety
 fs is open, the texts are texts, data has len bytes.
 */
int64_t quire_getxattr(const struct quire_fs *fs,
                       const char *name,
                       bool follow,
                       const char *attribute,
                       void *data,
                       size_t len);

/*
 Sets an extended attribute, and makes it if need be. 0, or a negative errno.

 # Safety
 As [quire_getxattr].
 */
int quire_setxattr(const struct quire_fs *fs,
                   const char *name,
                   bool follow,
                   const char *attribute,
                   const void *data,
                   size_t len);

/*
 Removes an extended attribute. 0, or a negative errno.

 # Safety
 fs is open, the texts are texts.
 */
int quire_removexattr(const struct quire_fs *fs, const char *name, bool follow, const char *attribute);

/*
 Lists the names of extended attributes, each with a zero at the end. Their size, or a negative errno; with len 0,
 nothing is copied.

 # Safety
 As [quire_getxattr].
 */
int64_t quire_listxattr(const struct quire_fs *fs, const char *name, bool follow, void *data, size_t len);

/*
 Opens a file; flags is 0 or a sum of QUIRE_CREATE, QUIRE_EXCLUSIVE, QUIRE_TRUNCATE and QUIRE_APPEND. mode is for a
 file that is made. 0, or a negative errno.

 # Safety
 fs is open, name a text, file a place for a pointer.
 */
int quire_file_open(const struct quire_fs *fs,
                    const char *name,
                    uint32_t flags,
                    uint32_t mode,
                    struct quire_file **file);

/*
 Ends the handle. What was written stays in memory until it is synced or the file system is closed, except what
 replaces the content of a file that was cut to nothing: it is written to the image here. NULL does nothing.

 # Safety
 file is null or open, and not used afterwards.
 */
int quire_file_close(struct quire_file *file);

/*
 Reads at the handle's position, and moves it. The count, less than len only at the end of the file; or a negative
 errno.

 # Safety
 file is open, data has len bytes.
 */
int64_t quire_read(struct quire_file *file, void *data, size_t len);

/*
 Writes at the handle's position, and moves it. The count, always len, or a negative errno.

 # Safety
 As [quire_read].
 */
int64_t quire_write(struct quire_file *file, const void *data, size_t len);

/*
 Reads at offset. The count, less than len only at the end of the file; or a negative errno.

 # Safety
 As [quire_read].
 */
int64_t quire_pread(const struct quire_file *file, void *data, size_t len, uint64_t offset);

/*
 Writes at offset. The count, always len, or a negative errno.

 # Safety
 As [quire_read].
 */
int64_t quire_pwrite(const struct quire_file *file, const void *data, size_t len, uint64_t offset);

/*
 Moves the handle's position; whence is SEEK_SET, SEEK_CUR or SEEK_END. The new position, or a negative errno.

 # Safety
 file is open.
 */
int64_t quire_seek(struct quire_file *file, int64_t offset, int whence);

/*
 Sets the size. What the file grows over reads as zeros. 0, or a negative errno.

 # Safety
 file is open.
 */
int quire_ftruncate(const struct quire_file *file, uint64_t size);

/*
 Makes the file durable; with data_only, its contents and what is needed to read them. 0, or a negative errno.

 # Safety
 file is open.
 */
int quire_fsync(const struct quire_file *file, bool data_only);

/*
 What the file system knows of the file. 0, or a negative errno.

 # Safety
 file is open, stat a place for the result.
 */
int quire_fstat(const struct quire_file *file, struct quire_stat *stat);

/*
 Opens a directory. 0, or a negative errno.

 # Safety
 fs is open, name a text, dir a place for a pointer.
 */
int quire_opendir(const struct quire_fs *fs, const char *name, struct quire_dir **dir);

/*
 The next entry, without "." and "..". 1, or 0 at the end, or a negative errno: the object cannot be read. The next
 call goes on behind it.

 # Safety
 dir is open, entry a place for the result.
 */
int quire_readdir(struct quire_dir *dir, struct quire_dirent *entry);

/*
 Ends the handle. NULL does nothing.

 # Safety
 dir is null or open, and not used afterwards.
 */
int quire_closedir(struct quire_dir *dir);

/*
 Makes a directory. 0, or a negative errno.

 # Safety
 fs is open, name a text.
 */
int quire_mkdir(const struct quire_fs *fs, const char *name, uint32_t mode);

/*
 Makes a directory and those above it, with mode 0755, where they do not exist. 0, or a negative errno.

 # Safety
 As [quire_mkdir].
 */
int quire_mkdir_all(const struct quire_fs *fs, const char *name);

/*
 Makes a file, fifo, socket or device; mode has the type, as mknod(2) takes it. 0, or a negative errno.

 # Safety
 As [quire_mkdir].
 */
int quire_mknod(const struct quire_fs *fs,
                const char *name,
                uint32_t mode,
                uint32_t device_major,
                uint32_t device_minor);

/*
 Removes a name that is no directory. 0, or a negative errno.

 # Safety
 As [quire_mkdir].
 */
int quire_unlink(const struct quire_fs *fs, const char *name);

/*
 Removes an empty directory. 0, or a negative errno.

 # Safety
 As [quire_mkdir].
 */
int quire_rmdir(const struct quire_fs *fs, const char *name);

/*
 Removes a name and everything below it. Symbolic links are not followed. 0, or a negative errno.

 # Safety
 As [quire_mkdir].
 */
int quire_remove_all(const struct quire_fs *fs, const char *name);

/*
 Sets the size of a file. 0, or a negative errno.

 # Safety
 As [quire_mkdir].
 */
int quire_truncate(const struct quire_fs *fs, const char *name, uint64_t size);

/*
 Renames; what has the new name is replaced. 0, or a negative errno.

 # Safety
 fs is open, from and to are texts.
 */
int quire_rename(const struct quire_fs *fs, const char *from, const char *to);

/*
 Makes a hard link: a second name. 0, or a negative errno.

 # Safety
 As [quire_rename].
 */
int quire_link(const struct quire_fs *fs, const char *from, const char *to);

/*
 Makes a symbolic link that leads to target. 0, or a negative errno.

 # Safety
 As [quire_rename].
 */
int quire_symlink(const struct quire_fs *fs, const char *target, const char *name);

/*
 Reads where a symbolic link leads, without a zero at the end, cut to len. The whole length, which may be more than
 len; or a negative errno.

 # Safety
 fs is open, name a text, data has len bytes.
 */
int64_t quire_readlink(const struct quire_fs *fs, const char *name, char *data, size_t len);

/*
 Brings a directory of the host, a tar archive (plain, gzip, zstd) or an OCI layout below the directory to, which
 must exist. The image itself is left out of a directory. The source "-" is a file of that name. how may be NULL;
 size is sizeof(struct quire_import_how). 0, or a negative errno.

 # Safety
 fs is open, the texts are texts, how is null or size bytes.
 */
int quire_import(const struct quire_fs *fs,
                 const char *to,
                 const char *source,
                 const struct quire_import_how *how,
                 size_t size);

/*
 Writes what is below the directory from as a tar archive to a file descriptor, which stays open. 0, or a negative
 errno: that of write(2), if the descriptor takes nothing more. After an error readers of the archive miss its end.

 # Safety
 fs is open, from a text; fd is open and stays so during the call.
 */
int quire_export_tar(const struct quire_fs *fs, const char *from, int fd);

/*
 Copies what is below the directory from into a directory of the host. 0, or a negative errno.

 # Safety
 fs is open, the texts are texts.
 */
int quire_export_dir(const struct quire_fs *fs, const char *from, const char *to);

/*
 Builds an image from a directory, a tar archive or an OCI layout. It has its name when it is complete. With
 how->size 0 it is as small as the tree allows. how_size is sizeof(struct quire_create_how). 0, or a negative errno.

 # Safety
 The texts are texts, how points to how_size bytes, import is null or has import_size.
 */
int quire_build(const char *image,
                const char *source,
                const struct quire_create_how *how,
                size_t how_size,
                const struct quire_import_how *import,
                size_t import_size);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus
