import { expect, test, vi } from 'vitest'
import {
  DeclarationError,
  httpStatusOf,
  ImmutableTextError,
  OnceFailedError,
  OnceRunningError,
  TextRejectedError,
  TextTakenError,
  TokenReusedError,
  TransactionAbortedError,
  UniqueTextError,
} from '../../src/errors'

test('an error is an instance of its class in every copy of the package that is loaded', async () => {
  vi.resetModules()
  const copy = await import('../../src/errors')
  expect(copy.DeclarationError).not.toBe(DeclarationError)
  for (const error of [new copy.DeclarationError('other'), new DeclarationError('own')]) {
    expect(error).toBeInstanceOf(DeclarationError)
    expect(error).toBeInstanceOf(copy.DeclarationError)
    expect(error).toBeInstanceOf(UniqueTextError)
    expect(error).toBeInstanceOf(copy.UniqueTextError)
    expect(error).not.toBeInstanceOf(TransactionAbortedError)
    expect(error).not.toBeInstanceOf(copy.TransactionAbortedError)
  }
})

test("somebody's class or object that has the name of an error of ours is none", () => {
  const named = Object.assign(new Error('no'), { name: 'TextTakenError' })
  expect(named).not.toBeInstanceOf(TextTakenError)
  expect(named).not.toBeInstanceOf(UniqueTextError)
  const { Taken } = {
    Taken: class TextTakenError extends UniqueTextError {
      override readonly name = 'Other'
      readonly code = 'TEXT_TAKEN'
    },
  }
  expect(new Taken('other')).toBeInstanceOf(UniqueTextError)
  expect(new Taken('other')).not.toBeInstanceOf(TextTakenError)
  expect(new TextTakenError([], undefined)).not.toBeInstanceOf(Taken)
})

test.each([
  [new TextTakenError([]), 409],
  [new OnceRunningError(), 409],
  [new ImmutableTextError('url'), 409],
  [new TokenReusedError(), 422],
  [new OnceFailedError('kept'), 422],
  [new TextRejectedError({ property: 'url', reason: 'of a test' }), 422],
  [new TransactionAbortedError(undefined), 503],
  [new DeclarationError('of the program'), 500],
  [new Error('of somebody else'), undefined],
  [undefined, undefined],
])('httpStatusOf %s is %s', (error, status) => {
  expect(httpStatusOf(error)).toBe(status)
})
