import { FindOperator } from 'typeorm'
import { OPERATOR_TEXTS } from '../core'
import { DeclarationError } from '../errors'

/** Becomes an equality with a hash when TypeORM builds a query. It must not run if no query builder of ours saw it. */
class TextOperator<Text> extends FindOperator<Text> {
  readonly [OPERATOR_TEXTS]: readonly Text[]

  constructor(texts: readonly Text[]) {
    super('raw', [] as never, true, true, (path) => {
      throw new DeclarationError(
        `textEquals() and textIn() are for a unique text, and "${path}" is not one here. Use Equal() or In().`,
      )
    })
    this[OPERATOR_TEXTS] = texts
  }
}

/**
 * Equality with a unique text, as an operator for `find` and everything else that takes conditions. It uses the index
 * even if `rewriteQueries` is off. The text is normalized. If the normalizer refuses it, nothing is found.
 *
 * @throws DeclarationError without a text. When the query is built, also for a property that is not a unique text, and
 * for one of several columns if the condition does not include all.
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
 * that the normalizer refuses are ignored.
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
