const ROUNDS = 5
/** No need to measure again. */
const LINEAR = 2
/** Below this a processor measures its own noise. */
const LEAST_MILLISECONDS = 1

/**
 * How much more processor time one text takes than its parts: about 1 where time is linear in the length, about `parts`
 * where it is quadratic. Not the clock's time, which is other processes' as well; the best of several rounds, for the
 * worst is a collection of garbage.
 *
 * @param work takes a text of about so many characters
 */
export function growth(work: (length: number) => () => void, length: number, parts: number): number {
  const [whole, part] = [work(length), work(Math.floor(length / parts))]
  let ratio = Infinity
  for (let round = 0; round < ROUNDS && ratio > LINEAR; round += 1) {
    const ofParts = processorMilliseconds(() => {
      for (let count = 0; count < parts; count += 1) part()
    })
    ratio = Math.min(ratio, processorMilliseconds(whole) / Math.max(ofParts, LEAST_MILLISECONDS))
  }
  return ratio
}

function processorMilliseconds(run: () => void): number {
  const before = process.cpuUsage()
  run()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1_000
}
