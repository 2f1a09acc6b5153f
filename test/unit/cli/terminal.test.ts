import { PassThrough } from 'node:stream'
import { describe, expect, test } from 'vitest'
import { openProgress, type Output, printable } from '../../../src/cli/terminal'

describe('printable', () => {
  test('escapes what could command a terminal, and keeps every other character', () => {
    expect(printable('a\x1b[2J\r\nb\x9bc\u202ed')).toBe('a\\u001b[2J\\u000d\\u000ab\\u009bc\\u202ed')
    expect(printable('日本 é 😀 "\\')).toBe('日本 é 😀 "\\')
  })
})

describe('openProgress', () => {
  const output = (terminal: boolean): { stream: Output; written: () => string } => {
    const stream = Object.assign(new PassThrough(), terminal ? { isTTY: true, columns: 60 } : {})
    // Node.js 26 gives one piece by each read, and earlier versions all of them together.
    const written = (): string => {
      let text = ''
      const read = (): Buffer | null => stream.read() as Buffer | null
      for (let piece = read(); piece !== null; piece = read()) text += piece.toString()
      return text
    }
    return { stream, written }
  }

  test('draws a bar over itself on a terminal, and removes it', () => {
    const { stream, written } = output(true)
    let now = 0
    const progress = openProgress(stream, () => now)
    now = 500
    progress.update(5_000, 0.5)
    expect(written()).toBe('\x1b[1G\x1b[0K[############------------] 50 %  5,000 lines  10,000 per se')
    progress.update(5_000, 0.6)
    expect(written()).toBe('')
    progress.end()
    expect(written()).toBe('\x1b[1G\x1b[0K')
  })

  test('writes plain lines elsewhere, and not too many', () => {
    const { stream, written } = output(false)
    let now = 0
    const progress = openProgress(stream, () => now)
    for (now = 0; now < 12_000; now += 500) progress.update(5_000, undefined)
    progress.end()
    expect(written()).toBe('5,000 lines  1,000 per second\n5,000 lines  500 per second\n')
  })
})
