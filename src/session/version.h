/* SPDX-License-Identifier: Apache-2.0 */
/* The numerics version: an integer that is raised whenever any bit of any output changes. A saved
 * session of another version is rebuilt from its ids (docs/formats.md). */
#ifndef STRATA_SESSION_VERSION_H
#define STRATA_SESSION_VERSION_H

#define STRATA_NUMERICS 1

#endif
