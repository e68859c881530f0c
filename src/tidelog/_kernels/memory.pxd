from cpython.bytearray cimport PyByteArray_FromStringAndSize
from libc.string cimport memcpy


cdef inline void copy_bytes(
    const unsigned char[::1] source,
    Py_ssize_t position,
    unsigned char[::1] target,
    Py_ssize_t target_position,
    Py_ssize_t length,
) noexcept:
    memcpy(&target[target_position], &source[position], <size_t>length)


cdef inline bytearray reserve(Py_ssize_t size):
    return PyByteArray_FromStringAndSize(NULL, size)
