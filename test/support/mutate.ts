/** What is replaced in every statement: a string once, a pattern with the flag `g` everywhere. */
export type Change = readonly [from: string | RegExp, to: string]

/**
 * Statements with one part taken out, to show that the tests would miss it.
 *
 * @param name for the error
 * @throws Error for a change that finds no place: it would be no mutation
 */
export function mutate(name: string, statements: readonly string[], changes: readonly Change[]): readonly string[] {
  return changes.reduce((before, [from, to]) => {
    const after = before.map((statement) => statement.replace(from, to))
    if (after.every((statement, index) => statement === before[index])) {
      throw new Error(`The mutation "${name}" does not fit: ${String(from)} is not in the statements.`)
    }
    return after
  }, statements)
}
