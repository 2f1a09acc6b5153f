import { Refusal } from '../../../src/text/normalizer'

/** What `make` gives, or undefined if it throws a Refusal. Any other error is a fault of the normalizer. */
export function unlessRefused<T>(make: () => T): T | undefined {
  try {
    return make()
  } catch (error) {
    if (error instanceof Refusal) return undefined
    throw error
  }
}
