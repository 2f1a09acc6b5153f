import { describe, expect, test } from 'vitest'
import { causeWithoutText } from '../../../src/text/normalizer'

describe('the cause', () => {
  const text = 'secret text'
  const cyclic = Object.assign(new Error('round'), { self: {} })
  cyclic.self = cyclic

  test.each([
    ['an error of its own', new RangeError('only .org')],
    [
      'with harmless properties',
      Object.assign(new Error('no'), { code: 'E_SLUG', issues: [{ path: ['a'] }], fix() {} }),
    ],
    ['with a cause', new Error('no', { cause: new TypeError('x is undefined') })],
    ['that form a cycle', cyclic],
    ['with a record', Object.assign(new Error('no'), { issue: Object.assign(Object.create(null), { path: 'a' }) })],
  ])('is kept: %s', (_, error) => {
    expect(causeWithoutText(error, text)).toBe(error)
  })

  test.each(['', 'refusal.test'])('is kept, though what it always holds contains %j', (short) => {
    const error = new RangeError('only_.org')
    expect(causeWithoutText(error, short)).toBe(error)
  })

  const invalidUrl = (): unknown => {
    try {
      return new URL(text.toUpperCase())
    } catch (error) {
      return error
    }
  }
  const getter = Object.defineProperty(new Error('no'), 'input', {
    get() {
      throw new Error('mine')
    },
  })
  const changed = new Error(`no: ${text}`)
  // Some runners make the stack when it is first read.
  expect(changed.stack).toContain(text)
  changed.message = 'no'

  test.each([
    ['of new URL', invalidUrl()],
    ['a SyntaxError', new SyntaxError('Unexpected token s')],
    ['the text in its message', new Error(`no: ${text}`)],
    ['the text in its stack', changed],
    ['the text in a property', Object.assign(new Error('no'), { given: { list: [text] } })],
    ['the text as a key', Object.assign(new Error('no'), { [text]: 1 })],
    ['the text in a hidden property', Object.defineProperty(new Error('no'), 'input', { value: text })],
    ['the text in its cause', new Error('no', { cause: invalidUrl() })],
    ['the text in one of several', new AggregateError([new Error(text)], 'no')],
    ['a Map that may hold it', Object.assign(new Error('no'), { seen: new Map([[1, text]]) })],
    ['what cannot be looked at', getter],
    ['no Error', text],
    ['no Error, and without the text', 'refused'],
    ['nothing', undefined],
  ])('is dropped: %s', (_, error) => {
    expect(causeWithoutText(error, ` ${text}`)).toBeUndefined()
  })
})
