"""placeholder"""


def write(r, d):
    pass


def table(r):
    return ""
