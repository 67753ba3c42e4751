/* SPDX-License-Identifier: Apache-2.0 */
#include "session/hot_list.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "session/state_file.h"

bool hot_list_bytes(const struct strata_model *m, uint8_t **data, size_t *bytes, struct err *e)
{
    *data = NULL;
    *bytes = 0;
    int most = m->stream ? stream_records(m->stream) : 0;
    if (!most)
        return true;
    struct stream_name *names = mem_alloc_array((size_t)most, sizeof *names, "a hot list", e);
    int n = names ? stream_hot_list(m->stream, names, most) : 0;
    *data = n ? mem_alloc((size_t)n * HOT_LIST_ENTRY, "a hot list", e) : NULL;
    for (int i = 0; *data && i < n; i++) {
        bytes_put_u32(*data + HOT_LIST_ENTRY * i, (uint32_t)names[i].layer);
        bytes_put_u32(*data + HOT_LIST_ENTRY * i + 4, (uint32_t)names[i].expert);
    }
    bool ok = names && (*data || !n);
    *bytes = *data ? (size_t)n * HOT_LIST_ENTRY : 0;
    mem_free(names);
    return ok;
}

static bool check_entry(const char *path, uint32_t layer, uint32_t expert, int layers, int experts,
                        bool *seen, struct err *e)
{
    if (layer >= (uint32_t)layers || expert >= (uint32_t)experts)
        return err_set(e, ERR_FORMAT,
                       "%s: section hot names expert %u of layer %u; there are %d experts and %d "
                       "layers",
                       path, expert, layer, experts, layers);
    bool *mark = &seen[(size_t)layer * (size_t)experts + expert];
    if (*mark)
        return err_set(e, ERR_FORMAT, "%s: section hot names expert %u of layer %u twice", path,
                       expert, layer);
    return *mark = true;
}

bool hot_list_parse(const char *path, const uint8_t *data, size_t bytes, int layers, int experts,
                    struct stream_name *out, struct err *e)
{
    if (bytes % HOT_LIST_ENTRY)
        return err_set(e, ERR_FORMAT, "%s: section hot has %zu bytes, no multiple of %d", path,
                       bytes, HOT_LIST_ENTRY);
    bool *seen =
        mem_alloc_array((size_t)layers * (size_t)experts + 1, sizeof *seen, "a hot list", e);
    bool ok = seen;
    for (size_t i = 0; ok && i < bytes / HOT_LIST_ENTRY; i++) {
        uint32_t layer = bytes_u32(data + HOT_LIST_ENTRY * i);
        uint32_t expert = bytes_u32(data + HOT_LIST_ENTRY * i + 4);
        ok = check_entry(path, layer, expert, layers, experts, seen, e);
        out[i] = (struct stream_name){(int32_t)layer, (int32_t)expert};
    }
    mem_free(seen);
    return ok;
}

bool hot_list_load(const struct strata_model *m, const struct state_file *f, struct err *e)
{
    const struct model_info *info = model_info(m->network);
    int layers = info->layers + 1; /* the draft layer may have been in use */
    size_t bytes, most = (size_t)layers * (size_t)info->experts * HOT_LIST_ENTRY;
    void *data;
    if (!state_file_block(f, "hot", most, &data, &bytes, e))
        return false;
    struct stream_name *names =
        bytes ? mem_alloc_array(bytes / HOT_LIST_ENTRY + 1, sizeof *names, "a hot list", e) : NULL;
    bool ok = !bytes || (names && hot_list_parse(f->path, data, bytes, layers, info->experts,
                                                 names, e));
    if (ok && bytes && m->stream)
        stream_fill_names(m->stream, names, (int)(bytes / HOT_LIST_ENTRY));
    mem_free(names);
    mem_free(data);
    return ok;
}
