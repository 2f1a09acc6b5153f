/**
 * Returns one of `nth` members, evenly spread and the first among them. `npm run test:all` gets every member. It is for
 * repetitions alone: each fact of the list has another test in the gate, or a member that represents it.
 */
export function gatePart<T>(nth: number, members: readonly T[]): readonly T[] {
  return process.env['TEST_ALL'] === undefined ? members.filter((_, index) => index % nth === 0) : members
}

/** How many of these random runs the gate makes. */
export const gateRuns = (all: number): number => gatePart(4, Array.from({ length: all })).length
