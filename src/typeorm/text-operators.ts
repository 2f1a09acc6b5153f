import { FindOperator } from 'typeorm'
import { DeclarationError } from '../errors'

const TEXTS: unique symbol = Symbol.for('typeorm-unique-text.texts')

/** Becomes an equality with hash when TypeORM makes a query of it; what no query builder of ours has seen must not run. */
class TextOperator<Text> extends FindOperator<Text> {
  readonly [TEXTS]: readonly Text[]

  constructor(texts: readonly Text[]) {
    super('raw', [] as never, true, true, (path) => {
      throw new DeclarationError(
        `textEquals() and textIn() are for a unique text, and "${path}" is not one here. Use Equal() or In().`,
      )
    })
    this[TEXTS] = texts
  }
}

/**
 * Equality with a unique text, as an operator for `find` and everything else that takes conditions. It looks by the
 * index also where `rewriteQueries` is off. The text is normalized; one that the normalizer refuses finds nothing.
 *
 * @throws DeclarationError without a text, and when the query is made, for a property that is no unique text, or one of
 * several columns of which the condition does not give all
 * @example
 * await pages.findOneBy({ url: textEquals('https://example.com') })
 */
export function textEquals<Text = string>(text: Text): FindOperator<Text> {
  if (text === undefined || text === null) {
    throw new DeclarationError(`textEquals() expects a text, got ${String(text)}. For rows without one, use IsNull().`)
  }
  return new TextOperator<Text>([text])
}

/**
 * Equality with any of several unique texts, as an operator for `find` and everything else that takes conditions. Texts
 * that the normalizer refuses count as if they were not in the list.
 *
 * @throws DeclarationError as `textEquals` does
 * @example
 * await pages.findBy({ url: textIn(['https://example.com', 'https://example.org']) })
 */
export function textIn<Text = string>(texts: readonly Text[]): FindOperator<Text> {
  if (!Array.isArray(texts) || texts.some((text) => text === undefined || text === null)) {
    throw new DeclarationError('textIn() expects a list of texts. Pass an array without null and undefined.')
  }
  return new TextOperator<Text>([...texts])
}

/** The texts of an operator that one of these made; undefined for anything else. */
export function operatorTexts(value: object): readonly unknown[] | undefined {
  return (value as { readonly [TEXTS]?: readonly unknown[] })[TEXTS]
}
