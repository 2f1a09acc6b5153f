/**
 * Returns ` Did you mean "import"?` for the known name that is most like a given one, or nothing if none is like it.
 *
 * @param prefix what a person types before the name
 */
export function didYouMean(given: string, known: readonly string[], prefix = ''): string {
  const lower = given.toLowerCase()
  const ranked = known
    .map((name) => ({ name, distance: distanceOf(lower, name.toLowerCase()) }))
    .sort((one, other) => one.distance - other.distance)
  const [nearest] = ranked
  const isNear = nearest && nearest.distance < given.length && nearest.distance <= Math.max(2, given.length / 3)
  return isNear ? ` Did you mean "${prefix}${nearest.name}"?` : ''
}

/** Counts the insertions, deletions and replacements between two words (Levenshtein). */
function distanceOf(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, index) => index)
  for (const [i, left] of Array.from(one).entries()) {
    const next = [i + 1]
    for (const [j, right] of Array.from(other).entries())
      next.push(Math.min((row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1, (row[j] ?? 0) + (left === right ? 0 : 1)))
    row = next
  }
  return row.at(-1) ?? 0
}
