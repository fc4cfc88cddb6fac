"""Prints the results of a class."""
from classes import AIMS, READ_AIMS, STAGES
from rounds import SLOW, STEADY, rates


def show(precision, result, o):
    for (stage, name), aim in zip(STAGES.items(), AIMS[precision]):
        ratio, part = result["ratio"].get(name), result["of_read"].get(name)
        words = f"  {precision:5} {name:17} "
        words += f"{ratio['median']:5.2f}x ({ratio['low']:.2f} to {ratio['high']:.2f})" if ratio else "    -                "
        words += f"  aim {aim}x" if aim else ""
        if part:
            words += (f"   {100 * part['median']:.0f} % of the read loop ({100 * part['low']:.0f} to {100 * part['high']:.0f};"
                      f" aim {READ_AIMS[precision]})")
        listed = (f"{n} {r:.1f}" + (" (once)" if n in result["asked_once"] else "") for n, r in rates(result, stage, o).items())
        print(words + "   tokens/s: " + ", ".join(listed), flush=True)
    show_rounds(precision, result, o)
    if result["asked_once"]:
        print(f"        asked once, since the fastest peer was more than {SLOW}x faster in every stage: "
              + ", ".join(result["asked_once"]))
    for n, reason in result["not"].items():
        print(f"        {n}: {reason}")


def show_rounds(precision, result, o):
    counted = [r for r in result["rounds"] if r["counts"]]
    reads = [c["read"] / 1e9 for r in counted for c in r["ceilings"]]
    fma = max(c["fma"] for r in counted for c in r["ceilings"]) / 1e9
    print(f"  {precision:5} rounds that count: {len(counted)} of {len(result['rounds'])}; the read loop {min(reads):.1f} to {max(reads):.1f}"
          f" GB/s, within a round at most {100 * max(r['spread'] - 1 for r in counted):.0f} % apart; the fma loop {fma:.0f} GFLOP/s")
    if not result["steady"]:
        found = sum(r["spread"] <= STEADY for r in counted)
        print(f"        UNSTEADY: readings differ by at most {100 * (STEADY - 1):.0f} % in {found} of the {o.rounds} rounds that were"
              " asked for; the steadiest of the others count too")
