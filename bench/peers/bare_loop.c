/* The limit: what the operating system alone takes to receive produce requests and write them.
 *
 * One thread, poll(2). Of each frame (4-byte length, then api key, version, correlation id) that is
 * a Produce request the bytes are written to a file as they arrive; nothing is checked. Every frame
 * is answered from a file of recorded answers: repeated (int16 api key, int16 version, int32 size,
 * bytes after the correlation id), all big-endian. A frame without a recorded answer closes the
 * connection.
 *
 * usage: bare_loop PORT ANSWERS OUTPUT
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 64, ANSWERS_MAX = 64, HEADER_BYTES = 12, BUFFER_BYTES = 1 << 20 };

/* The file is started over at this size, so that a long run does not fill the disk. */
static const off_t OUTPUT_BYTES_MAX = (off_t)1 << 30;

struct answer { int16_t key, version; uint32_t size; unsigned char *bytes; };
struct connection { unsigned char header[HEADER_BYTES]; size_t have; uint64_t left; };

static struct answer answers[ANSWERS_MAX];
static int answer_count;
static struct pollfd polls[CONNECTIONS_MAX + 1];
static struct connection connections[CONNECTIONS_MAX + 1];
static int poll_count = 1;
static unsigned char buffer[BUFFER_BYTES];
static int output;
static off_t output_bytes;

static void fail(const char *what) { perror(what); exit(1); }
static uint32_t u32(const unsigned char *p) { uint32_t v; memcpy(&v, p, 4); return ntohl(v); }
static int16_t i16(const unsigned char *p) { uint16_t v; memcpy(&v, p, 2); return (int16_t)ntohs(v); }

static void load_answers(const char *path) {
    FILE *file = fopen(path, "rb");
    unsigned char head[8];
    if (!file) fail(path);
    while (answer_count < ANSWERS_MAX && fread(head, 1, 8, file) == 8) {
        struct answer *a = &answers[answer_count++];
        a->key = i16(head), a->version = i16(head + 2), a->size = u32(head + 4);
        a->bytes = malloc(a->size + 8);
        if (!a->bytes || fread(a->bytes + 8, 1, a->size, file) != a->size) fail("short answers");
    }
    fclose(file);
}

static void store(const unsigned char *bytes, size_t count) {
    while (count > 0) {
        ssize_t wrote = write(output, bytes, count);
        if (wrote < 0) fail("write");
        bytes += wrote, count -= (size_t)wrote, output_bytes += wrote;
    }
    if (output_bytes > OUTPUT_BYTES_MAX) {
        if (ftruncate(output, 0) < 0 || lseek(output, 0, SEEK_SET) < 0) fail("truncate");
        output_bytes = 0;
    }
}

/* Answers are small and the socket's buffer is not: a blocking send never waits in practice. */
static int answer(int fd, const unsigned char *header) {
    for (int i = 0; i < answer_count; i++) {
        struct answer *a = &answers[i];
        if (a->key != i16(header + 4) || a->version != i16(header + 6)) continue;
        uint32_t size = htonl(a->size + 4);
        memcpy(a->bytes, &size, 4);
        memcpy(a->bytes + 4, header + 8, 4);
        return send(fd, a->bytes, a->size + 8, MSG_NOSIGNAL) == (ssize_t)(a->size + 8) ? 0 : -1;
    }
    fprintf(stderr, "no answer for api %d version %d\n", i16(header + 4), i16(header + 6));
    return -1;
}

/* One recv: the rest of a header, or as much of a body as there is. -1 closes the connection. */
static int receive(int fd, struct connection *c) {
    if (c->have < HEADER_BYTES) {
        ssize_t got = recv(fd, c->header + c->have, HEADER_BYTES - c->have, MSG_DONTWAIT);
        if (got <= 0) return got < 0 && errno == EAGAIN ? 0 : -1;
        c->have += (size_t)got;
        if (c->have < HEADER_BYTES) return 0;
        if (u32(c->header) < HEADER_BYTES - 4) return -1;
        c->left = u32(c->header) - (HEADER_BYTES - 4);
    }
    while (c->left > 0) {
        size_t want = c->left < BUFFER_BYTES ? (size_t)c->left : BUFFER_BYTES;
        ssize_t got = recv(fd, buffer, want, MSG_DONTWAIT);
        if (got <= 0) return got < 0 && errno == EAGAIN ? 0 : -1;
        if (i16(c->header + 4) == 0) store(buffer, (size_t)got);
        c->left -= (uint64_t)got;
    }
    c->have = 0;
    return answer(fd, c->header);
}

static void accept_one(int listener) {
    int fd = accept(listener, NULL, NULL), on = 1;
    if (fd < 0) return;
    if (poll_count > CONNECTIONS_MAX) { close(fd); return; }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    polls[poll_count] = (struct pollfd){.fd = fd, .events = POLLIN};
    memset(&connections[poll_count++], 0, sizeof connections[0]);
}

int main(int count, char **arguments) {
    if (count != 4) { fprintf(stderr, "usage: bare_loop PORT ANSWERS OUTPUT\n"); return 2; }
    load_answers(arguments[2]);
    output = open(arguments[3], O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (output < 0) fail(arguments[3]);
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_port = htons((uint16_t)atoi(arguments[1]));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0) fail("bind");
    if (listen(listener, 64) < 0) fail("listen");
    polls[0] = (struct pollfd){.fd = listener, .events = POLLIN};
    for (;;) {
        if (poll(polls, (nfds_t)poll_count, -1) < 0) fail("poll");
        for (int i = poll_count - 1; i > 0; i--) {
            if (!polls[i].revents || receive(polls[i].fd, &connections[i]) == 0) continue;
            close(polls[i].fd);
            polls[i] = polls[--poll_count];
            connections[i] = connections[poll_count];
        }
        if (polls[0].revents) accept_one(listener);
    }
}
