"""Fills docs/benchmarks/index.md from the last whole run, and draws its growth curves as SVG."""

import math
import re
import sys

import bench_results as results

LARGE_DISTURBANCE = 10  # percent of a processor: above it, figures are not of a quiet machine
MISSING = "not yet taken"

MATCH = ("µs", [("p50_us", "p50", "#1f77b4"), ("p99_us", "p99", "#d95f02")])
STORE = ("ns", [("store_ns", "mean", "#1f77b4")])
CURVES = [  # file, benchmark, what grows, title, unit and lines
    ("growth-blocks.svg", "GrowthBlocks/blocks:", "other blocks in the index", "Match of 100 blocks that 128 streams hold", MATCH),
    ("growth-streams.svg", "GrowthStreams/streams:", "streams", "Match of 1,000 blocks that all of them hold", MATCH),
    ("growth-prompt.svg", "GrowthPrompt/blocks:", "blocks of the prompt", "Match of a prompt that 128 streams hold", MATCH),
    ("growth-store.svg", "GrowthBlocks/blocks:", "blocks in the index", "Storing a block, keys nearly free", STORE),
]


def section(text, name, content):
    """Replaces what stands between the two marks of a section."""
    mark = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    if not mark.search(text):
        sys.exit(f"tools/bench --write-docs: docs/benchmarks/index.md has no section {name}")
    return mark.sub(lambda match: match.group(1) + content + match.group(2), text)


def row(*cells):
    return "| " + " | ".join(cells) + " |\n"


def with_unit(value, unit):
    return f"{results.number(value)} {unit}".strip()


def results_table(entries):
    found = {(entry["id"], entry["metric"]): entry for entry in entries}
    text = row("id", "what", "bar", "median", "lowest … highest", "distance") + row(*["---"] * 6)
    metrics = [(metric.id, metric.name, metric.what, metric.bar, metric.unit, metric.at_least) for metric in results.METRICS]
    ratio = ("P10", "tail_ratio", "p99.9 meanwhile over p99.9 under change", 2, "×", False)
    metrics.insert(max(i for i, metric in enumerate(metrics) if metric[0] == "P10") + 1, ratio)
    for id_, name, what, bar, unit, at_least in metrics:
        entry = found.get((id_, name))
        bar_text = "" if bar is None else f"{'≥' if at_least else '≤'} {with_unit(bar, unit)}"
        if entry is None:
            text += row(id_, what, bar_text, MISSING, "", "")
            continue
        spread = entry["spread"]
        across = f"{results.number(spread['low'])} … {results.number(spread['high'])}" if spread and spread["n"] > 1 else ""
        if bar is None:
            distance = ""
        elif entry["ok"]:
            distance = "met"
        elif not bar or not entry["value"]:
            distance = "missed"
        else:
            distance = f"missed by {max(entry['value'] / bar, bar / entry['value']):.2f} ×"
        text += row(id_, what, bar_text, with_unit(entry["value"], unit), across, distance)
    return text


def machine_lines(report):
    if report is None:
        return f"{MISSING}: `make bench`, then `tools/bench --write-docs`.\n"
    machine = report["machine"]
    text = (f"- machine: {machine['processors']} processors ({machine['processor']}), {machine['memory']}, {machine['system']}, "
            f"{machine['compiler']}, `-O2`\n"
            f"- command: `make bench`, revision {machine['revision']}, {machine['date']}, {report['seconds']} s; "
            f"trace: {report['trace']}\n")
    if report["others_cpu_pct"] > LARGE_DISTURBANCE:
        text += (f"- **other processes used {report['others_cpu_pct']:.0f} % of a processor meanwhile** (load average "
                 f"{machine['load']} when started): tails measure the scheduler, rates are too low\n")
    return text


def parts_table(report):
    samples = results.Samples()
    for benchmark in report["benchmarks"]:
        samples.add(benchmark)
    text = row("what", "median", "spread") + row(*["---"] * 3)
    for what, benchmark, counter, unit, scale in results.PARTS:
        values = [value * scale for value in samples.values(benchmark, counter)]
        if values:
            figures = results.summary(values)
            text += row(what, with_unit(figures["value"], unit), f"{100 * figures['cv']:.1f} %")
        else:
            text += row(what, MISSING, "")
    return text


def peers_table(peers):
    if peers is None:
        return f"{MISSING}: `make bench-peers`, then `tools/bench --write-docs`.\n"
    machine = peers["machine"]
    text = f"{peers['peer']}, {peers['rounds']} rounds, {machine['date']}, load average {machine['load']} when started.\n\n"
    text += row("id", "what", "peer", "ours", "ours is better by") + row(*["---"] * 5)
    for entry in peers["rows"]:
        text += row(entry["id"], entry["what"], with_unit(entry["peer"], entry["unit"]), with_unit(entry["ours"], entry["unit"]),
                    f"{entry['better']:.2f} ×")
    return text


# --- curves

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 560, 300, 64, 16, 36, 48


def curve_points(report, prefix, lines):
    """[(x, {counter: median})], ascending."""
    samples = results.Samples()
    for benchmark in report["benchmarks"]:
        samples.add(benchmark)
    points = []
    for name in samples.by_name:
        if name.startswith(prefix):
            medians = {counter: results.summary(samples.values(name, counter))["value"] for counter, _, _ in lines}
            points.append((int(name[len(prefix):]), medians))
    return sorted(points)


def powers(low, high):
    return [10.0**e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]


def tick_label(value):
    if value >= 1:
        exponent = round(math.log10(value))
        return f"{value:.0f}" if exponent < 4 else f"10<tspan dy='-5' font-size='9'>{exponent}</tspan>"
    return f"{value:g}"


def draw(points, x_title, title, unit, lines):
    x_ticks = powers(points[0][0], points[-1][0])
    every = [values[counter] for _, values in points for counter, _, _ in lines]
    y_ticks = powers(min(every), max(every))

    def scale(value, ticks, begin, end):
        low, high = math.log10(ticks[0]), math.log10(ticks[-1])
        return begin + (math.log10(value) - low) / ((high - low) or 1) * (end - begin)

    def at_x(value):
        return scale(value, x_ticks, LEFT, WIDTH - RIGHT)

    def at_y(value):
        return scale(value, y_ticks, HEIGHT - BOTTOM, TOP)

    out = [f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {HEIGHT}' font-family='sans-serif' font-size='12'>",
           f"<rect width='{WIDTH}' height='{HEIGHT}' fill='white'/>",
           f"<text x='{LEFT}' y='20' font-weight='bold'>{title}</text>"]
    for tick in x_ticks:
        x = at_x(tick)
        out.append(f"<path d='M{x:.1f} {TOP}V{HEIGHT - BOTTOM}' stroke='#ddd'/>"
                   f"<text x='{x:.1f}' y='{HEIGHT - BOTTOM + 16}' text-anchor='middle'>{tick_label(tick)}</text>")
    for tick in y_ticks:
        y = at_y(tick)
        out.append(f"<path d='M{LEFT} {y:.1f}H{WIDTH - RIGHT}' stroke='#ddd'/>"
                   f"<text x='{LEFT - 6}' y='{y + 4:.1f}' text-anchor='end'>{tick_label(tick)}</text>")
    out.append(f"<text x='{(LEFT + WIDTH - RIGHT) / 2}' y='{HEIGHT - 10}' text-anchor='middle'>{x_title}</text>"
               f"<text transform='translate(16 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)' text-anchor='middle'>{unit}</text>")
    for i, (counter, label, colour) in enumerate(lines):
        path = "M" + " L".join(f"{at_x(x):.1f} {at_y(values[counter]):.1f}" for x, values in points)
        out.append(f"<path d='{path}' fill='none' stroke='{colour}' stroke-width='2'/>")
        out.extend(f"<circle cx='{at_x(x):.1f}' cy='{at_y(values[counter]):.1f}' r='2.5' fill='{colour}'/>" for x, values in points)
        out.append(f"<text x='{WIDTH - RIGHT - 80 + 40 * i}' y='20' fill='{colour}'>{label}</text>")
    return "\n".join([*out, "</svg>", ""])


def write_curves(folder, report):
    text = ""
    for file, prefix, x_title, title, (unit, lines) in CURVES:
        points = curve_points(report, prefix, lines)
        if len(points) < 2:
            text += f"{title}: {MISSING}.\n\n"
            continue
        (folder / file).write_text(draw(points, x_title, title, unit, lines))
        text += f"![{title}, by {x_title}]({file})\n\n"
    return text


def write(folder, report, churn, peers):
    """Returns the exit code."""
    if report is not None and report["quick"]:
        print("tools/bench --write-docs: the last whole run was a quick one; run make bench", file=sys.stderr)
        return 1
    page = folder / "index.md"
    text = page.read_text()
    entries = (report["results"] if report else []) + (churn["results"] if churn else [])
    missing = f"{MISSING}.\n"
    text = section(text, "machine", machine_lines(report))
    text = section(text, "results", results_table(entries))
    text = section(text, "parts", parts_table(report) if report else missing)
    text = section(text, "growth", write_curves(folder, report) if report else missing)
    text = section(text, "peers", peers_table(peers))
    page.write_text(text)
    print(f"written: {page}")
    return 0
