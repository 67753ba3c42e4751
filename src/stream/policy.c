/* SPDX-License-Identifier: Apache-2.0 */
#include "stream/policy.h"

#include "base/mem.h"

/* A list a class, oldest first; links are slot numbers, -1 at the ends. */
struct link {
    int32_t older, newer;
};

struct ends {
    int32_t oldest, newest;
};

struct policy {
    struct link *link; /* [slots] */
    struct ends *ends; /* [classes] */
};

struct policy *policy_create(int classes, int slots, struct err *e)
{
    struct policy *p = mem_alloc(sizeof *p, "eviction order", e);
    if (!p)
        return NULL;
    p->link = mem_alloc_array((size_t)slots, sizeof *p->link, "eviction order", e);
    p->ends = mem_alloc_array((size_t)classes, sizeof *p->ends, "eviction order", e);
    if (!p->link || !p->ends) {
        policy_free(p);
        return NULL;
    }
    for (int i = 0; i < classes; i++)
        p->ends[i] = (struct ends){-1, -1};
    return p;
}

void policy_free(struct policy *p)
{
    if (!p)
        return;
    mem_free(p->link);
    mem_free(p->ends);
    mem_free(p);
}

void policy_admit(struct policy *p, int class_index, int slot)
{
    struct ends *ends = &p->ends[class_index];
    p->link[slot] = (struct link){.older = ends->newest, .newer = -1};
    *(ends->newest >= 0 ? &p->link[ends->newest].newer : &ends->oldest) = slot;
    ends->newest = slot;
}

void policy_remove(struct policy *p, int class_index, int slot)
{
    struct ends *ends = &p->ends[class_index];
    struct link l = p->link[slot];
    *(l.older >= 0 ? &p->link[l.older].newer : &ends->oldest) = l.newer;
    *(l.newer >= 0 ? &p->link[l.newer].older : &ends->newest) = l.older;
}

void policy_touch(struct policy *p, int class_index, int slot)
{
    policy_remove(p, class_index, slot);
    policy_admit(p, class_index, slot);
}

int policy_victim(const struct policy *p, int class_index, int after)
{
    return after < 0 ? p->ends[class_index].oldest : p->link[after].newer;
}
