import { expect, test } from 'vitest'
import { DeclarationError } from '../../../src/errors'
import { url } from '../../../src/text/url'

test('url() refuses a preset it does not know, and options without canonical', () => {
  expect(() => url('strict' as 'safe')).toThrow(DeclarationError)
  expect(() => url('safe' as 'canonical', { stripHash: true })).toThrow(DeclarationError)
})

test('url() is url@1, and so is the preset by its name', () => {
  expect(url()).toMatchObject({ name: 'url', version: 1 })
  expect(url('safe')).toBe(url())
})
