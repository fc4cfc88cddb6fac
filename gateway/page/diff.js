// Words of `b` that are not in a longest common subsequence with `a`: [word, differs] in order.
export function differences(a, b) {
  const x = a.split(/(\s+)/), y = b.split(/(\s+)/);
  const best = Array.from({ length: x.length + 1 }, () => new Uint32Array(y.length + 1));
  for (let i = x.length - 1; i >= 0; i--)
    for (let j = y.length - 1; j >= 0; j--)
      best[i][j] = x[i] === y[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  const out = [];
  for (let i = 0, j = 0; j < y.length; ) {
    if (i < x.length && x[i] === y[j]) {
      out.push([y[j++], false]);
      i++;
    } else if (i < x.length && best[i + 1][j] >= best[i][j + 1]) {
      i++;
    } else {
      out.push([y[j++], true]);
    }
  }
  return out;
}
