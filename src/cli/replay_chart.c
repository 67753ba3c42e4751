/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/replay_chart.h"

#include <string.h>

enum { LEFT = 60, TOP = 30, WIDE = 560, HIGH = 360, LINES_MOST = 8 };
static const char *const colors[LINES_MOST] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd",
                                               "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f"};

static double at_x(double share)
{
    return LEFT + WIDE * share;
}

static double at_y(double rate)
{
    return TOP + HIGH * (1 - rate);
}

static void put_axes(struct json_out *out)
{
    for (int i = 0; i <= 10; i += 2) {
        double x = at_x(i / 10.0), y = at_y(i / 10.0);
        json_putf(out, "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#ddd\"/>\n", x,
                  TOP, x, TOP + HIGH);
        json_putf(out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>\n",
                  LEFT, y, LEFT + WIDE, y);
        json_putf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d %%</text>\n", x,
                  TOP + HIGH + 18, 10 * i);
        json_putf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.1f</text>\n", LEFT - 8,
                  y + 4, i / 10.0);
    }
    json_putf(out,
              "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">arena, share of all experts</text>\n",
              LEFT + WIDE / 2, TOP + HIGH + 38);
    json_putf(out, "<text x=\"%d\" y=\"%d\">hit rate</text>\n", LEFT - 50, TOP - 12);
}

static bool belongs(const struct replay_row *r, const char *policy, const struct replay_row *first)
{
    return !strcmp(r->policy, policy) &&
           (!strcmp(policy, "bound") ||
            (!strcmp(r->read_ahead, first->read_ahead) && !strcmp(r->moce, first->moce)));
}

static void put_line(const struct replay_row *rows, int n, const char *policy, int number,
                     struct json_out *out)
{
    const char *color = colors[number % LINES_MOST];
    const char *dash = strcmp(policy, "bound") ? "" : " stroke-dasharray=\"6 4\"";
    json_putf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s points=\"", color,
              dash);
    for (int i = 0; i < n; i++)
        if (belongs(&rows[i], policy, rows))
            json_putf(out, "%.1f,%.1f ", at_x(rows[i].share), at_y(rows[i].hit_rate));
    json_puts(out, "\"/>\n");
    int y = TOP + HIGH - 20 - 18 * number;
    json_putf(
        out, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke=\"%s\" stroke-width=\"2\"%s/>\n",
        LEFT + WIDE - 90, y, LEFT + WIDE - 60, y, color, dash);
    json_putf(out, "<text x=\"%d\" y=\"%d\">%s</text>\n", LEFT + WIDE - 52, y + 4, policy);
}

void replay_chart(const struct replay_row *rows, int n, struct json_out *out)
{
    json_putf(out,
              "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
              "font-family=\"sans-serif\" font-size=\"12\">\n",
              LEFT + WIDE + 20, TOP + HIGH + 50);
    json_puts(out, "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n");
    put_axes(out);
    int lines = 0;
    for (int i = 0; i < n; i++) {
        bool is_new = true;
        for (int j = 0; j < i; j++)
            is_new = is_new && strcmp(rows[j].policy, rows[i].policy) != 0;
        if (is_new)
            put_line(rows, n, rows[i].policy, lines++, out);
    }
    json_puts(out, "</svg>\n");
}
