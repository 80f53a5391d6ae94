// A streamed chat that calls a tool, is told what it says, and answers; prints as JSON what was made of it.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const { LLMGW_URL, LLMGW_API_KEY, ASKING_MODEL, ANSWERING_MODEL } = process.env;
const llmgw = createOpenAICompatible({
  name: "llmgw",
  baseURL: `${LLMGW_URL}/v1`,
  apiKey: LLMGW_API_KEY,
  includeUsage: true,
});
const asked = [];
const result = streamText({
  model: llmgw(ASKING_MODEL),
  prompt: "Hi.",
  temperature: 0,
  maxRetries: 0,
  tools: {
    get_weather: tool({
      description: "The weather of a city.",
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => {
        asked.push(city);
        return { sky: "rain" };
      },
    }),
  },
  stopWhen: stepCountIs(2),
  prepareStep: ({ stepNumber }) => (stepNumber === 0 ? {} : { model: llmgw(ANSWERING_MODEL) }),
  onError: ({ error }) => {
    throw error;
  },
});
const pieces = [];
for await (const piece of result.textStream) pieces.push(piece);
const steps = (await result.steps).map((step) => ({
  finish: step.finishReason,
  calls: step.toolCalls.map((call) => [call.toolName, call.input]),
  text: step.text,
  input: step.usage.inputTokens,
  output: step.usage.outputTokens,
  request: step.response.headers["x-request-id"],
}));
console.log(JSON.stringify({ asked, pieces, steps }));
