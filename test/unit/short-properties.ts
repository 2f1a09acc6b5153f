import * as fc from 'fast-check'

/** A fault shows in the first inputs or is as good as unseen; thousands of them for each fault would take a day. */
fc.configureGlobal({ interruptAfterTimeLimit: 25, markInterruptAsFailure: false })
