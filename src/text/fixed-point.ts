import { Refusal } from './refusal'

/** Rounds after which a text is refused. Real URLs take at most three. */
const ROUNDS = 10

/**
 * Applies `step` until it changes nothing. That makes any step idempotent: the result is a fixed point, and a fixed point
 * is returned as it is.
 *
 * @throws Refusal if the text still changes after 10 rounds; whatever `step` throws.
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
