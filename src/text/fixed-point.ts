import { Refusal } from './refusal'

/** Rounds after which a text is refused. Real URLs need at most three. */
const ROUNDS = 10

/**
 * Applies `step` until it changes nothing, which makes an idempotent function of any step: what comes out is a fixed
 * point, and a fixed point comes out as it went in.
 *
 * @throws Refusal if that takes more than 10 rounds; whatever `step` throws.
 */
export function toFixedPoint(step: (text: string) => string, text: string): string {
  let current = text
  for (let round = 0; round < ROUNDS; round++) {
    const next = step(current)
    if (next === current) return next
    current = next
  }
  throw new Refusal(`it keeps changing after ${ROUNDS} rounds of normalizing`)
}
