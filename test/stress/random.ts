/** Choices that a seed decides. */
export interface Random {
  /** From 0 up to, not including, `limit`. */
  int(limit: number): number
  chance(probability: number): boolean
  pick<T>(list: readonly T[]): T
  /** `count` different elements in a random order; all of them where there are fewer. */
  sample<T>(list: readonly T[], count: number): T[]
}

/** Mulberry32: 32 bits of state are plenty for choosing among a few dozen actions. */
export function seededRandom(seed: number): Random {
  let state = seed >>> 0
  const next = (): number => {
    state = (state + 0x6d2b79f5) >>> 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
  const int = (limit: number): number => Math.floor(next() * limit)
  const pick = <T>(list: readonly T[]): T => {
    if (list.length === 0) throw new TypeError('Nothing to pick from.')
    return list[int(list.length)] as T
  }
  const sample = <T>(list: readonly T[], count: number): T[] => {
    const left = [...list]
    const taken: T[] = []
    while (taken.length < count && left.length > 0) taken.push(...left.splice(int(left.length), 1))
    return taken
  }
  return { int, chance: (probability) => next() < probability, pick, sample }
}

/** Lots for a weight of 1; a tenth is the smallest weight. */
const LOTS = 10

/** A function that draws from `list` in proportion to the weights. */
export function weighted<T extends { readonly weight: number }>(list: readonly T[]): (random: Random) => T {
  const lots = list.flatMap((element) => Array.from({ length: Math.round(element.weight * LOTS) }, () => element))
  return (random) => random.pick(lots)
}
