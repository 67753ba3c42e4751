/* SPDX-License-Identifier: Apache-2.0 */
/* Between engine.c, which opens and loads, and planning.c, which says how much of what. */
#ifndef STRATA_SESSION_ENGINE_H
#define STRATA_SESSION_ENGINE_H

#include "session/session.h"

/* Limits of options. */
enum {
    ENGINE_CTX_DEFAULT_MOST = 32768,
    ENGINE_CTX_MOST = 1 << 24,
    ENGINE_BAND_DEFAULT = 2048,
    ENGINE_BAND_MOST = 1 << 20,
    ENGINE_TILE_DEFAULT = 64,
    ENGINE_WINDOW_MOST = 8,
    ENGINE_IO_DEPTH_MOST = 256,
};

/* Makes the plan once, and with it workers, backend and read engine, which its figures depend on;
 * nothing large is allocated. After a failure it can be tried again. */
bool engine_plan(struct strata_model *m, struct err *e);

/* Whether routing depends on what is in memory: then results depend on the order of passes. */
bool streaming_bends_routing(const struct strata_model *m);
/* What tells its options apart; 0: routing is exact. */
uint32_t streaming_routing_print(const struct strata_model *m);
/* What the options say of streaming, into the configuration (streaming.c). */
bool streaming_config(const struct strata_model *m, struct stream_config *c, struct err *e);
/* Pieces of one part of a record that somebody waits for, by what was measured of the drive; the
 * layers of `c` are there. */
int streaming_split(const struct strata_model *m, const struct stream_config *c);
/* Fills copy_paths from the options: each replica must be the same model, or its sidecar, where one
 * is used. Beside a replica of the model its sidecar must lie then; without it one that nobody
 * named is not used after all. */
bool streaming_find_copies(struct strata_model *m, struct err *e);
void streaming_forget_copies(struct strata_model *m);
/* How many records tokens are expected to miss: by the popularity profile if there is one that has
 * seen enough, else as of any model. */
void streaming_expect(struct strata_model *m, struct knee_curve *out);
/* After the stream is created: cache-aware routing and the popularity profile. */
bool streaming_start(struct strata_model *m, struct err *e);
/* Before the stream is freed: writes the profile. */
void streaming_finish(struct strata_model *m);

/* Bytes of a model's name without "-00001-of-0000N" and ".gguf". */
size_t streaming_stem_bytes(const char *path);

/* The sidecar (packing.c): opens the one that the options name, or one beside the model that fits.
 * False: one that was named cannot be used. */
bool packing_find(struct strata_model *m, struct err *e);
void packing_free(struct strata_model *m);
const char *packing_path(const struct strata_model *m); /* NULL: none is used */
/* Where a model's sidecar lies if nothing else is said. Freed with mem_free. */
char *packing_path_beside(const char *model, struct err *e);
bool packing_is_sidecar(const char *path);
/* Whether the file is laid out as the sidecar that is used, and of the same model. */
bool packing_check_copy(const struct strata_model *m, const char *path, struct err *e);
/* Where the experts of a layer lie in it, as file number `file` of the read engine. */
void packing_place(const struct strata_model *m, int layer, int file, struct stream_layer *out);
/* Puts itself between the network and the stream, if a sidecar is used. */
void packing_wire(struct strata_model *m);

/* Where the experts lie; c->layer is freed by the caller with mem_free, c->arena_bytes is 0. */
bool engine_stream_config(const struct strata_model *m, struct stream_config *c, struct err *e);
/* Reads of one record. */
int engine_record_parts(const struct stream_config *c);
/* Share of a decoded token's work that goes into routed experts, by the bytes that it touches. */
double engine_expert_share(const struct strata_model *m);
/* Rows of the table that a pass of `rows` tokens asks for. */
int engine_table_rows(const struct model_row_table *t, int rows);

#endif
