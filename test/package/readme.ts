/** What a document asks its reader to do: files to write, and commands to run after that, in their order. */
export interface Example {
  readonly files: Readonly<Record<string, string>>
  readonly steps: readonly { readonly command: string; readonly output: string | undefined }[]
}

const MARKED = /^<!-- (?<mark>file: (?<name>\S+)|run|output) -->\n\s*^```\w*\n(?<text>.*?)^```$/gmsu

/**
 * The fenced blocks that a comment marks, on a line of its own before them: `<!-- file: NAME -->`, `<!-- run -->`, and
 * `<!-- output -->` for what the commands of the last `run` print.
 */
export function readExample(markdown: string): Example {
  const files: Record<string, string> = {}
  const steps: { command: string; output: string | undefined }[] = []
  for (const { groups = {} } of markdown.matchAll(MARKED)) {
    const { mark, name, text = '' } = groups
    const last = steps.at(-1)
    if (name !== undefined) files[name] = text
    else if (mark === 'run') steps.push({ command: text, output: undefined })
    else if (last) last.output = text.trim()
  }
  return { files, steps }
}

const COPIED = /^<!-- copied: (?<source>\S+) -->\n\s*^```\w*\n(?<text>.*?)^```$/gmsu

/** The fenced blocks that are copies of a file of the repository: `<!-- copied: PATH -->`. */
export function readCopies(markdown: string): { readonly source: string; readonly text: string }[] {
  return [...markdown.matchAll(COPIED)].map(({ groups = {} }) => ({
    source: groups['source'] ?? '',
    text: groups['text'] ?? '',
  }))
}

const LINES = /^<!-- lines: (?<name>\w+) -->\n\s*^```ts\n(?<text>.*?)^```$/gmsu

/** Lines of a program that a document leaves to its reader: classes first, and after a blank line what is done. */
export interface Lines {
  readonly name: string
  readonly classes: string
  readonly body: string
  readonly output: string
}

/** The fenced blocks after `<!-- lines: NAME -->`. */
export function readLines(markdown: string): Lines[] {
  return [...markdown.matchAll(LINES)].map(({ groups = {} }) => {
    const { name = '', text = '' } = groups
    const start = text.startsWith('@') ? text.indexOf('\n\n') : 0
    return { name, classes: text.slice(0, start), body: text.slice(start), output: printedBy(text) }
  })
}

/** What a program prints, by the comments after its `console.log`. */
export const printedBy = (program: string): string =>
  [...program.matchAll(/^ *console\.log\(.*\) \/\/ (.+)$/gmu)].map(([, output = '']) => output).join('\n')

/** Fenced blocks that no comment marks, so that no test runs them. */
export function unmarkedBlocks(markdown: string): string[] {
  const blocks = [...markdown.matchAll(/(?:^<!-- (?<mark>\w+).* -->\n\s*)?^```\w*\n(?<text>.*?)^```$/gmsu)]
  return blocks.flatMap(({ groups = {} }) => (groups['mark'] === undefined ? [groups['text'] ?? ''] : []))
}
