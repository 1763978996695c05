"""ext4 images without mounting: without root, without FUSE, safe against crashes.

>>> import quire
>>> with quire.Image.create(None, "16M", label="sandbox") as image:
...     image.makedirs("/etc")
...     with image.batch():
...         _ = image.write_text("/etc/hostname", "sandbox\\n")
...         image.chown("/etc/hostname", 0, 0)
...     image.listdir("/etc")
...     image.read_text("/etc/hostname")
['hostname']
'sandbox\\n'

Paths are those of the image, from its root. The methods of :class:`Image` have the names and the meaning of those in
``os``, ``os.path`` and ``shutil``; files are those of ``io``. What fails raises ``OSError`` or a subclass, such as
``FileNotFoundError`` or :class:`CorruptError`.
"""

from ._quire import (
    BadInputError,
    BatchTooLargeError,
    CorruptError,
    Info,
    NotExt4Error,
    OutsideRootError,
    QuireError,
    Stat,
    ToolError,
    UnsupportedError,
    Usage,
    __version__,
)
from .file import File
from .image import DirEntry, Image, build

__all__ = [
    "BadInputError",
    "BatchTooLargeError",
    "CorruptError",
    "DirEntry",
    "File",
    "Image",
    "Info",
    "NotExt4Error",
    "OutsideRootError",
    "QuireError",
    "Stat",
    "ToolError",
    "UnsupportedError",
    "Usage",
    "__version__",
    "build",
]
